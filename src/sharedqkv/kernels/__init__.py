"""Fused attention for keys and values that are one tensor, reached as the attention backend `fused`."""

from sharedqkv.kernels.backend import FUSED, fused_attention
from sharedqkv.kernels.op import shared_kv_attention
from sharedqkv.kernels.segments import Segments, segments_of

__all__ = ["FUSED", "Segments", "fused_attention", "segments_of", "shared_kv_attention"]
