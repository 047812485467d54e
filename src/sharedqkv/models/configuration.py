"""The configuration: BERT's fields, how q, k and v are made, and two choices of architecture."""

import difflib
from dataclasses import field, fields
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

from sharedqkv.attention import Geometry, Variant, build_variant

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2},
    "mini": {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4},
    "small": {"num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8},
    "medium": {"num_hidden_layers": 8, "hidden_size": 512, "num_attention_heads": 8},
    "base": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12},
    "large": {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16},
}
"""Google's BERT sizes; the feed-forward width is four times the hidden size in all of them."""

POSITION_EMBEDDING_TYPES = ("absolute", "rotary")
NORM_PLACEMENTS = ("post", "pre")
LOADABLE_MODEL_TYPES = ("sharedqkv", "bert")

# Taken by the base class though they are no dataclass fields of it.
_BASE_CLASS_KEYS = {
    "_attn_implementation_internal",
    "_commit_hash",
    "_experts_implementation_internal",
    "_name_or_path",
    "_output_attentions",
    "attn_implementation",
    "auto_map",
    "experts_implementation",
    "model_type",
    "name_or_path",
    "num_labels",
    "output_attentions",
    "quantization_config",
    "tokenizer_class",
    "torch_dtype",
}
# Found in published BERT configs of any age, and without meaning here: accepted and dropped.
LEGACY_KEYS = {
    "_num_labels",
    "bad_words_ids",
    "bos_token_id",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "directionality",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "eos_token_id",
    "eos_token_ids",
    "finetuning_task",
    "gradient_checkpointing",
    "is_cross_attention",
    "language",
    "length_penalty",
    "max_length",
    "min_length",
    "name",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_past",
    "output_scores",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
    "prefix",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "sep_token_id",
    "task_specific_params",
    "temperature",
    "top_k",
    "top_p",
    "torchscript",
    "typical_p",
    "use_bfloat16",
    "use_cache",
    "use_return_dict",
    "xla_device",
}
# Would make another model of it: accepted only when off.
_DECODER_KEYS = {"is_decoder", "add_cross_attention"}


class SharedQKVConfig(PreTrainedConfig):
    """Configuration of the sharedqkv encoders.

    Example:
        >>> SharedQKVConfig.from_size("base", attention_variant="shared", attention_options={"bias": True})
    """

    model_type = "sharedqkv"

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = True

    attention_variant: str = "standard"
    attention_options: dict = field(default_factory=dict)  # bare, for isinstance
    position_embedding_type: str = "absolute"
    rotary_base: float | int = 10000.0
    norm_placement: str = "post"

    def __post_init__(self, **kwargs: Any) -> None:
        self._refuse_unknown(kwargs)
        known = {key: value for key, value in kwargs.items() if key in _BASE_CLASS_KEYS and key != "model_type"}
        super().__post_init__(**known)
        self.check()

    @classmethod
    def from_size(cls, size: str, **overrides: Any) -> "SharedQKVConfig":
        """A configuration by name: tiny, mini, small, medium, base or large."""
        if size not in SIZES:
            raise ValueError(f"unknown size {size!r}; known: {', '.join(SIZES)}")
        values: dict[str, Any] = {**SIZES[size], "intermediate_size": 4 * SIZES[size]["hidden_size"]}
        return cls(**{**values, **overrides})

    @classmethod
    def get_config_dict(
        cls, pretrained_model_name_or_path: Any, **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        config_dict, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        model_type = config_dict.pop("model_type", cls.model_type)
        if model_type not in LOADABLE_MODEL_TYPES:
            raise ValueError(
                f"{pretrained_model_name_or_path} holds a model of type {model_type!r}; "
                f"sharedqkv loads {' and '.join(repr(name) for name in LOADABLE_MODEL_TYPES)}"
            )
        return config_dict, kwargs

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        # The base class would set overrides one by one after construction, past all validation.
        own = {config_field.name for config_field in fields(cls)} - {"dtype"}
        overrides = {key: kwargs.pop(key) for key in list(kwargs) if key in own}
        return super().from_dict({**config_dict, **overrides}, **kwargs)

    def _refuse_unknown(self, kwargs: dict[str, Any]) -> None:
        for key in _DECODER_KEYS & set(kwargs):
            if kwargs[key]:
                raise ValueError(f"{key}={kwargs[key]!r} is not supported: sharedqkv models are encoders")
        unknown = sorted(set(kwargs) - _BASE_CLASS_KEYS - LEGACY_KEYS - _DECODER_KEYS)
        if unknown:
            own = sorted(config_field.name for config_field in fields(self))
            close = difflib.get_close_matches(unknown[0], own, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"unknown configuration keys {unknown}.{hint} Allowed: {', '.join(own)}")

    def check(self) -> None:
        """Raise a ValueError for values no model can be built from."""
        for name, kind in SharedQKVConfig.__annotations__.items():
            value = getattr(self, name)
            right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
            self._require(name, right, f"of type {getattr(kind, '__name__', kind)}")
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "type_vocab_size",
        ):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        self._require("chunk_size_feed_forward", self.chunk_size_feed_forward == 0, "0 (chunking is not supported)")
        self._require("is_encoder_decoder", not self.is_encoder_decoder, "false: sharedqkv models are encoders")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            value = getattr(self, name)
            self._require(name, value is None or 0 <= value < 1, "in [0, 1)")
        self._require("initializer_range", self.initializer_range > 0, "positive")
        self._require("layer_norm_eps", self.layer_norm_eps > 0, "positive")
        self._require("rotary_base", self.rotary_base > 1, "greater than 1")
        self._require("hidden_act", self.hidden_act in ACT2FN, f"one of {', '.join(sorted(ACT2FN))}")
        for name, allowed in (
            ("position_embedding_type", POSITION_EMBEDDING_TYPES),
            ("norm_placement", NORM_PLACEMENTS),
        ):
            self._require(name, getattr(self, name) in allowed, f"one of {', '.join(allowed)}")
        if self.pad_token_id is not None:
            self._require("pad_token_id", 0 <= self.pad_token_id < self.vocab_size, f"in [0, {self.vocab_size})")
        with torch.device("meta"):
            head_size = self.build_attention_variant().head_size
        if self.position_embedding_type == "rotary" and head_size % 2:
            raise ValueError(f"rotary positions turn channels in pairs, and the head size is {head_size}")

    def _require(self, name: str, holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(f"{name} must be {what}, not {getattr(self, name)!r}")

    def build_attention_variant(self) -> Variant:
        geometry = Geometry(width=self.hidden_size, num_heads=self.num_attention_heads)
        return build_variant(self.attention_variant, geometry, self.attention_options)
