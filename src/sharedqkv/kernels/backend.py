"""The attention backend `fused` of Hugging Face's attention interface.

Where the kernels do not apply, or are known to be slower, it computes the same by SDPA and says why, once.
"""

import logging
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from sharedqkv.attention.base import Projected
from sharedqkv.attention.rotary import Rotation, plain_queries_keys_values
from sharedqkv.kernels.op import INTERPRETED, shared_kv_attention, unsupported
from sharedqkv.kernels.rotation import rotate_alone
from sharedqkv.kernels.segments import Segments

log = logging.getLogger(__name__)

FUSED = "fused"
LONGEST_FASTER_THAN_SDPA = {"symmetric": 4096, "queries apart": 512, "rotary": 256}
"""Rows that need no mask, in training, as measured on an H200 (benchmarks/NOTES.md); with one, SDPA is slow at any
length."""

_told: set[str] = set()


def fused_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Segments | Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    projected: Projected | None = None,
    rotation: Rotation | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention with the interface's signature.

    Our own models give `projected` and `rotation` besides: scales of queries and keys and the rotation are then still
    to be applied, so that the kernels can. The output's scale stays with the caller.
    """
    projected = projected or Projected(query, key, value)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    reason = why_not_fused(projected, attention_mask, rotation is not None)
    if reason is not None:
        _tell_once(reason)
        return _by_sdpa(module, projected, rotation, attention_mask, scaling, dropout, causal, **kwargs), None
    context_BLHK = shared_kv_attention(
        projected.q_BHLK,
        projected.k_BGLK,
        query_scale_HD=projected.query_scale_HK,
        key_scale_HD=projected.key_scale_HK,
        rotation=rotation,
        segments=attention_mask if isinstance(attention_mask, Segments) else None,
        causal=causal,
        dropout=dropout,
        scaling=scaling,
    )
    return context_BLHK, None


def why_not_fused(projected: Projected, attention_mask: Segments | Tensor | None, rotary: bool = False) -> str | None:
    """The reason to leave this attention to SDPA, or None."""
    q_BHLK, s_BGLK = projected.q_BHLK, projected.k_BGLK
    if s_BGLK is not projected.v_BGLK:
        return "keys and values are not one tensor in this variant"
    if isinstance(attention_mask, Tensor):
        return "the kernels know padding and documents, but no other mask"
    if (reason := unsupported(s_BGLK)) is not None:
        return reason
    if projected.query_scale_HK is not None and q_BHLK.shape[1] != s_BGLK.shape[1]:
        return "the kernels know no scales for heads in groups"
    if not INTERPRETED and s_BGLK.dtype == torch.float32:
        return "SDPA is faster in float32"
    kind = "rotary" if rotary else "symmetric" if q_BHLK is s_BGLK else "queries apart"
    longest = LONGEST_FASTER_THAN_SDPA[kind]
    if not INTERPRETED and attention_mask is None and s_BGLK.shape[2] > longest:
        return f"SDPA is faster for rows of more than {longest} tokens ({kind})"
    return None


def _by_sdpa(
    module: nn.Module,
    projected: Projected,
    rotation: Rotation | None,
    attention_mask: Segments | Tensor | None,
    scaling: float,
    dropout: float,
    causal: bool,
    **kwargs: Any,
) -> Tensor:
    q_BHLK, k_BGLK, v_BGLK = plain_queries_keys_values(projected, rotation, rotate_alone)
    if isinstance(attention_mask, Segments):
        attention_mask = attention_mask.visible()
        if causal:
            attention_mask = attention_mask.tril()
    context_BLHK, _ = sdpa_attention_forward(
        module, q_BHLK, k_BGLK, v_BGLK, attention_mask, dropout=dropout, scaling=scaling, is_causal=causal, **kwargs
    )
    return context_BLHK


# Run once while compiling: a compiled graph could not log.
@torch.compiler.assume_constant_result
def _tell_once(reason: str) -> None:
    if reason not in _told:
        _told.add(reason)
        log.warning('attn_implementation="%s" uses SDPA: %s', FUSED, reason)


AttentionInterface.register(FUSED, fused_attention)
# For models other than ours; without it they would get no mask at all.
AttentionMaskInterface.register(FUSED, sdpa_mask)
