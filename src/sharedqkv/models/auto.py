"""Registration with Transformers' Auto classes; importing this module does it."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertTokenizer,
)

from sharedqkv.models import heads
from sharedqkv.models.configuration import SharedQKVConfig
from sharedqkv.models.modeling import SharedQKVModel

AUTO_CLASSES = {
    AutoModel: SharedQKVModel,
    AutoModelForPreTraining: heads.SharedQKVForPreTraining,
    AutoModelForMaskedLM: heads.SharedQKVForMaskedLM,
    AutoModelForSequenceClassification: heads.SharedQKVForSequenceClassification,
    AutoModelForTokenClassification: heads.SharedQKVForTokenClassification,
    AutoModelForQuestionAnswering: heads.SharedQKVForQuestionAnswering,
    AutoModelForMultipleChoice: heads.SharedQKVForMultipleChoice,
}

AutoConfig.register(SharedQKVConfig.model_type, SharedQKVConfig)
for auto_class, model_class in AUTO_CLASSES.items():
    auto_class.register(SharedQKVConfig, model_class)
AutoTokenizer.register(SharedQKVConfig, slow_tokenizer_class=BertTokenizer)
