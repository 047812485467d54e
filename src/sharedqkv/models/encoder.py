"""The encoder's parts, with BERT's module names, so that `standard` reads and writes BERT checkpoints."""

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from sharedqkv.attention.base import is_plain_linear
from sharedqkv.attention.rotary import Rotation, plain_queries_keys_values
from sharedqkv.kernels import FUSED, bias_gelu, kernels_know, rotate_alone
from sharedqkv.models.configuration import SharedQKVConfig


class StreamLayerNorm(nn.LayerNorm):
    """A LayerNorm that gives back the dtype it gets.

    Autocast computes it in fp32 and would leave the whole residual stream in fp32: twice the memory and traffic. The
    first sub-layer brings the stream to autocast's dtype, and there it stays.
    """

    def forward(self, states: Tensor) -> Tensor:
        return super().forward(states).to(states.dtype)


class SharedQKVEmbeddings(nn.Module):
    """Words, token types and, unless positions are rotary, learned positions."""

    def __init__(self, config: SharedQKVConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        if config.position_embedding_type == "absolute":
            self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = StreamLayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self, words_BLD: Tensor, token_type_ids_BL: Tensor | None = None, position_ids_BL: Tensor | None = None
    ) -> Tensor:
        """Without token types all are 0, without positions they count from 0.

        Both are then read off the tables as slices: the gradient of a slice is a plain sum over the batch, that of a
        look-up thousands of additions to the same few rows.
        """
        if token_type_ids_BL is None:
            embeddings = words_BLD + _first_rows(self.token_type_embeddings, 1)
        else:
            embeddings = words_BLD + self.token_type_embeddings(token_type_ids_BL)
        if hasattr(self, "position_embeddings"):
            if position_ids_BL is None:
                embeddings = embeddings + _first_rows(self.position_embeddings, words_BLD.shape[1])
            else:
                embeddings = embeddings + self.position_embeddings(position_ids_BL)
        return self.dropout(self.LayerNorm(embeddings))


def _first_rows(table: nn.Embedding, count: int) -> Tensor:
    hook: Any = getattr(table, "_hf_hook", None)
    if hook is not None:  # Accelerate brings the weights when the table is called
        return table(torch.arange(count, device=hook.execution_device))
    return table.weight[:count]


class ResidualOutput(nn.Module):
    """The end of a sub-layer: back to the model's width and onto the residual stream.

    Post-norm normalises the sum; pre-norm normalises what goes into the sub-layer, which asks for it through
    `sublayer_input`. The LayerNorm keeps BERT's place in the checkpoint either way.
    """

    def __init__(self, in_features: int, config: SharedQKVConfig):
        super().__init__()
        self.pre_norm = config.norm_placement == "pre"
        self.dense = nn.Linear(in_features, config.hidden_size)
        self.LayerNorm = StreamLayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def sublayer_input(self, residual: Tensor) -> Tensor:
        return self.LayerNorm(residual) if self.pre_norm else residual

    def forward(self, states: Tensor, residual: Tensor, scale: Tensor | None = None) -> Tensor:
        """`scale` multiplies the channels of `states`."""
        if scale is None:
            states = self.dense(states)
        elif is_plain_linear(self.dense):
            # On the weight it costs next to nothing, gradients included, however many tokens there are.
            states = nn.functional.linear(
                states, self.dense.weight * scale.to(self.dense.weight.dtype), self.dense.bias
            )
        else:
            states = self.dense(states * scale.to(states.dtype))
        states = self.dropout(states)
        summed = states + residual.to(states.dtype)
        return summed if self.pre_norm else self.LayerNorm(summed)


def eager_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """The `eager` backend, with HF's signature; the only one that can hand out attention weights."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    logits = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        logits = logits + attention_mask
    weights = nn.functional.dropout(nn.functional.softmax(logits, dim=-1), p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


class SharedQKVAttention(nn.Module):
    """Self-attention: the variant makes q, k and v, HF's attention interface does the rest.

    The variant is the module `self`, so that the parameters of `standard` have BERT's names.
    """

    is_causal = False

    def __init__(self, config: SharedQKVConfig):
        super().__init__()
        self.config = config
        self.self = config.build_attention_variant()
        self.output = ResidualOutput(self.self.context_width, config)
        self.num_key_value_groups = self.self.num_heads // self.self.num_key_value_heads
        self.scaling = self.self.head_size**-0.5
        self.dropout = config.attention_probs_dropout_prob

    def forward(
        self, hidden_BLD: Tensor, attention_mask: Any, rotation: Rotation | None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        projected = self.self(self.output.sublayer_input(hidden_BLD))
        if self.config._attn_implementation == FUSED:
            # It applies the scales of queries and keys and the rotation itself, where they cost nothing.
            q_BHLK, k_BGLK, v_BGLK = projected.q_BHLK, projected.k_BGLK, projected.v_BGLK
            kwargs |= {"projected": projected, "rotation": rotation}
        else:
            q_BHLK, k_BGLK, v_BGLK = plain_queries_keys_values(projected, rotation, rotate_alone)
        if v_BGLK.shape[-1] != q_BHLK.shape[-1] and "flash" in str(self.config._attn_implementation):
            raise ValueError(
                f"attn_implementation={self.config._attn_implementation!r} needs values as wide as queries, and "
                f"attention_variant={self.config.attention_variant!r} has heads of {v_BGLK.shape[-1]} and "
                f'{q_BHLK.shape[-1]} channels; call model.set_attn_implementation("sdpa")'
            )
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention)
        context_BLHK, weights = attend(
            self,
            q_BHLK,
            k_BGLK,
            v_BGLK,
            attention_mask,
            dropout=self.dropout if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        scale_HK = projected.output_scale_HK
        scale_E = None if scale_HK is None else scale_HK.flatten()
        return self.output(context_BLHK.flatten(2), hidden_BLD, scale_E), weights


class SharedQKVIntermediate(nn.Module):
    def __init__(self, config: SharedQKVConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACT2FN[config.hidden_act]
        self.is_gelu = config.hidden_act == "gelu"

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        watched = self.activation._forward_hooks or self.activation._backward_hooks
        if self.is_gelu and not watched and is_plain_linear(self.dense) and kernels_know(hidden_BLD):
            return bias_gelu(nn.functional.linear(hidden_BLD, self.dense.weight), self.dense.bias)
        return self.activation(self.dense(hidden_BLD))


class SharedQKVLayer(GradientCheckpointingLayer):
    def __init__(self, config: SharedQKVConfig):
        super().__init__()
        self.attention = SharedQKVAttention(config)
        self.intermediate = SharedQKVIntermediate(config)
        self.output = ResidualOutput(config.intermediate_size, config)

    def forward(
        self, hidden_BLD: Tensor, attention_mask: Any, rotation: Rotation | None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        hidden_BLD, weights = self.attention(hidden_BLD, attention_mask, rotation, **kwargs)
        states = self.intermediate(self.output.sublayer_input(hidden_BLD))
        return self.output(states, hidden_BLD), weights


class SharedQKVEncoder(nn.Module):
    def __init__(self, config: SharedQKVConfig):
        super().__init__()
        self.layer = nn.ModuleList(SharedQKVLayer(config) for _ in range(config.num_hidden_layers))
        if config.norm_placement == "pre":
            self.LayerNorm = StreamLayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def attentions(self) -> list[SharedQKVAttention]:
        return [cast(SharedQKVLayer, layer).attention for layer in self.layer]

    def forward(
        self,
        hidden_BLD: Tensor,
        attention_mask: Any,
        rotation: Rotation | None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        **kwargs: Any,
    ) -> BaseModelOutput:
        hidden_states, attentions = [hidden_BLD], []
        for layer in self.layer:
            hidden_BLD, weights = layer(hidden_BLD, attention_mask, rotation, **kwargs)
            if output_hidden_states:
                hidden_states.append(hidden_BLD)
            if output_attentions:
                attentions.append(weights)
        if hasattr(self, "LayerNorm"):
            hidden_BLD = self.LayerNorm(hidden_BLD)
            hidden_states[-1] = hidden_BLD
        return BaseModelOutput(
            last_hidden_state=hidden_BLD,
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )


class SharedQKVPooler(nn.Module):
    def __init__(self, config: SharedQKVConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        return torch.tanh(self.dense(hidden_BLD[:, 0]))
