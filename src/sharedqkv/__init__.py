"""Transformer encoders whose queries, keys and values share their weights.

Importing the package registers its models with Transformers' Auto classes.
"""

from sharedqkv._version import __version__
from sharedqkv.attention import Geometry, Projected, Variant, register_variant, variant_names
from sharedqkv.models import (
    SharedQKVConfig,
    SharedQKVForMaskedLM,
    SharedQKVForMultipleChoice,
    SharedQKVForPreTraining,
    SharedQKVForQuestionAnswering,
    SharedQKVForSequenceClassification,
    SharedQKVForTokenClassification,
    SharedQKVModel,
)

__all__ = [
    "Geometry",
    "Projected",
    "SharedQKVConfig",
    "SharedQKVForMaskedLM",
    "SharedQKVForMultipleChoice",
    "SharedQKVForPreTraining",
    "SharedQKVForQuestionAnswering",
    "SharedQKVForSequenceClassification",
    "SharedQKVForTokenClassification",
    "SharedQKVModel",
    "Variant",
    "__version__",
    "register_variant",
    "variant_names",
]
