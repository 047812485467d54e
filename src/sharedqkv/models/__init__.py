"""Encoders and their heads as Hugging Face models."""

from sharedqkv.models.auto import AUTO_CLASSES
from sharedqkv.models.configuration import SIZES, SharedQKVConfig
from sharedqkv.models.heads import (
    SharedQKVForMaskedLM,
    SharedQKVForMultipleChoice,
    SharedQKVForPreTraining,
    SharedQKVForQuestionAnswering,
    SharedQKVForSequenceClassification,
    SharedQKVForTokenClassification,
)
from sharedqkv.models.modeling import SharedQKVModel, SharedQKVPreTrainedModel

__all__ = [
    "AUTO_CLASSES",
    "SIZES",
    "SharedQKVConfig",
    "SharedQKVForMaskedLM",
    "SharedQKVForMultipleChoice",
    "SharedQKVForPreTraining",
    "SharedQKVForQuestionAnswering",
    "SharedQKVForSequenceClassification",
    "SharedQKVForTokenClassification",
    "SharedQKVModel",
    "SharedQKVPreTrainedModel",
]
