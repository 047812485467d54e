"""The bare encoder as a Hugging Face model, and what all models with heads share."""

import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask, packed_sequence_mask_function
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple, logging

from sharedqkv.attention import Variant
from sharedqkv.attention.neighbours import BASE
from sharedqkv.attention.rotary import rotation_for
from sharedqkv.kernels import FUSED, segments_of
from sharedqkv.models.configuration import SharedQKVConfig
from sharedqkv.models.encoder import SharedQKVAttention, SharedQKVEmbeddings, SharedQKVEncoder, SharedQKVPooler

log = logging.get_logger(__name__)

# Backends whose masks can keep the documents of a packed row apart.
PACKING_BACKENDS = ("eager", "sdpa", "flex_attention", FUSED)


class SharedQKVPreTrainedModel(PreTrainedModel):
    config_class = SharedQKVConfig
    config: SharedQKVConfig
    # BERT's prefix, so that BERT's checkpoints fit.
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _no_split_modules = ["SharedQKVEmbeddings", "SharedQKVLayer"]
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_flash_attn = True
    _supports_attention_backend = True

    def __init__(self, config: SharedQKVConfig, *args: Any, **kwargs: Any):
        if not isinstance(config, SharedQKVConfig):
            raise TypeError(f"{type(self).__name__} needs a SharedQKVConfig, not a {type(config).__name__}")
        config.check()
        super().__init__(config, *args, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Variant):
            module.init_weights(self.config.initializer_range)
            if module.made_for_rotary and not next(module.parameters()).is_meta:  # there it is only counted
                self._tell_about_rotary()

    def _tell_about_rotary(self) -> None:
        config, variant = self.config, f"attention_variant={self.config.attention_variant!r}"
        if config.position_embedding_type != "rotary":
            log.warning_once(
                f"{variant} is made for rotary positions: with learned ones the biases it starts with do nothing "
                'useful. Set position_embedding_type="rotary".'
            )
        elif config.rotary_base != BASE:
            log.warning_once(
                f"{variant} starts with biases for rotary_base={BASE:g}: with {config.rotary_base:g} its heads do not "
                "look at their neighbours first."
            )

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """As in Transformers, from safetensors only, and refusing checkpoints none of whose weights fit."""
        if kwargs.get("use_safetensors") is False:
            raise ValueError("use_safetensors=False is refused: sharedqkv reads weights from safetensors only")
        kwargs["use_safetensors"] = True
        wants_info = kwargs.pop("output_loading_info", False)
        try:
            model, info = super().from_pretrained(
                pretrained_model_name_or_path, *args, output_loading_info=True, **kwargs
            )
        except SafetensorError as error:
            raise OSError(_damaged_message(pretrained_model_name_or_path, error)) from error
        encoder_weights = {name for name, _ in model.named_parameters() if ".encoder.layer." in f".{name}"}
        if encoder_weights and encoder_weights <= set(info["missing_keys"]):
            raise OSError(
                f"{pretrained_model_name_or_path}: no encoder weight of {cls.__name__} is in this checkpoint, which "
                f"has keys like {sorted(info['unexpected_keys'])[:3]}. It belongs to another kind of model: load it "
                "with the class that wrote it."
            )
        return (model, info) if wants_info else model

    @torch.no_grad()
    def fold(self) -> Self:
        """Remove, in place, what inference need not compute: parameters that merge exactly into others.

        The outputs stay the same to rounding. The configuration says what is left, so that the model is saved and
        loaded as any other. A variant with nothing to merge, or a model folded before, stays as it is.
        """
        attentions = [module for module in self.modules() if isinstance(module, SharedQKVAttention)]
        for dense in (attention.output.dense for attention in attentions):
            if type(dense) is not nn.Linear or type(dense.weight) is not nn.Parameter:
                raise ValueError(
                    f"fold() needs plain output projections, not {type(dense).__name__} with a weight of type "
                    f"{type(dense.weight).__name__}: merge adapters first (merge_and_unload()), quantise afterwards"
                )
        old_config, config = self.config, copy.deepcopy(self.config)
        for attention in attentions:
            before = attention.self.options
            attention.self.fold(attention.output.dense, rotary=config.position_embedding_type == "rotary")
            if attention.self.options != before:
                config.attention_options = asdict(attention.self.options)
        # Another model may have been built from the same configuration object.
        for module in self.modules():
            if getattr(module, "config", None) is old_config:
                module.config = config
        return self


def _damaged_message(path: Any, error: Exception) -> str:
    damaged = []
    for file in sorted(Path(path).glob("*.safetensors")) if Path(path).is_dir() else ():
        try:
            with safe_open(file, framework="pt"):
                pass
        except SafetensorError:
            damaged.append(file.name)
    named = f"{path}: {', '.join(damaged)}" if damaged else str(path)
    return f"{named}: the weights are damaged or cut off ({error}). Copy or download the checkpoint again."


class SharedQKVModel(SharedQKVPreTrainedModel):
    """The encoder with BERT's pooler, giving hidden states."""

    def __init__(self, config: SharedQKVConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.embeddings = SharedQKVEmbeddings(config)
        self.encoder = SharedQKVEncoder(config)
        self.pooler = SharedQKVPooler(config) if add_pooling_layer else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embeddings.word_embeddings = value

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        document_ids: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode a batch.

        `document_ids` (batch, length) marks packed rows: tokens see only tokens of their own document, and
        positions start anew in each unless `position_ids` says otherwise. Ids of one document must be adjacent.
        """
        words_BLD = self._words(input_ids, inputs_embeds)
        positions_1L = torch.arange(words_BLD.shape[1], device=words_BLD.device).unsqueeze(0)
        if position_ids is None and document_ids is not None:
            position_ids = _positions_in_documents(positions_1L, document_ids)
        output_attentions = self.config.output_attentions if output_attentions is None else output_attentions
        if output_attentions and self.config._attn_implementation != "eager":
            raise ValueError(
                f"attn_implementation={self.config._attn_implementation!r} never forms the attention weights; load the "
                'model with attn_implementation="eager", or call model.set_attn_implementation("eager"), for '
                "output_attentions=True"
            )
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states

        hidden_BLD = self.embeddings(words_BLD, token_type_ids, position_ids)
        rotation = None
        if self.config.position_embedding_type == "rotary":
            head_size = self.encoder.attentions()[0].self.head_size
            positions_BL = positions_1L if position_ids is None else position_ids
            rotation = rotation_for(positions_BL, head_size, self.config.rotary_base, hidden_BLD.dtype)
        encoded = self.encoder(
            hidden_BLD,
            self._attention_mask(hidden_BLD, attention_mask, document_ids),
            rotation,
            output_hidden_states=bool(output_hidden_states),
            output_attentions=bool(output_attentions),
            **kwargs,
        )
        return BaseModelOutputWithPooling(
            last_hidden_state=encoded.last_hidden_state,
            pooler_output=None if self.pooler is None else self.pooler(encoded.last_hidden_state),
            hidden_states=encoded.hidden_states,
            attentions=encoded.attentions,
        )

    def _words(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        given: Any = input_ids if inputs_embeds is None else inputs_embeds
        name, dims = ("input_ids", 2) if inputs_embeds is None else ("inputs_embeds", 3)
        if given.dim() != dims:
            raise ValueError(f"{name} must have {dims} dimensions, not shape {tuple(given.shape)}")
        if given.shape[1] > self.config.max_position_embeddings:
            raise ValueError(
                f"a sequence of {given.shape[1]} tokens is longer than max_position_embeddings "
                f"{self.config.max_position_embeddings}; truncate it (tokenizer(..., truncation=True, "
                f"max_length={self.config.max_position_embeddings})) or build the model with a larger value"
            )
        if inputs_embeds is None:
            if given.dtype not in (torch.int64, torch.int32):
                raise TypeError(f"input_ids must be int64 or int32, not {given.dtype}")
            return self.embeddings.word_embeddings(given)
        if not given.is_floating_point():
            raise TypeError(f"inputs_embeds must be floating point, not {given.dtype}; token ids go into input_ids")
        return given

    def _attention_mask(self, hidden_BLD: Tensor, attention_mask: Tensor | None, document_ids: Tensor | None) -> Any:
        if attention_mask is None and document_ids is None:
            # Transformers builds an all-true mask here while compiling, and SDPA leaves its fused kernels for it.
            return None
        if self.config._attn_implementation == FUSED and (attention_mask is None or attention_mask.dim() == 2):
            return segments_of(attention_mask, document_ids)
        if document_ids is None:
            return create_bidirectional_mask(self.config, hidden_BLD, attention_mask)
        if self.config._attn_implementation not in PACKING_BACKENDS:
            raise ValueError(
                f"document_ids need a backend that keeps documents apart: {', '.join(PACKING_BACKENDS)}, "
                f"not {self.config._attn_implementation!r}"
            )
        return create_bidirectional_mask(
            self.config, hidden_BLD, attention_mask, and_mask_function=packed_sequence_mask_function(document_ids)
        )


def _positions_in_documents(positions_1L: Tensor, document_ids_BL: Tensor) -> Tensor:
    """0, 1, 2… anew wherever the document id changes."""
    starts_BL = torch.ones_like(document_ids_BL, dtype=torch.bool)
    starts_BL[:, 1:] = document_ids_BL[:, 1:] != document_ids_BL[:, :-1]
    return positions_1L - torch.where(starts_BL, positions_1L, 0).cummax(dim=1).values
