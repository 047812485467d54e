"""Kernels for GPUs: fused attention for keys and values that are one tensor, reached as the attention backend `fused`,
and passes over memory that a compiler makes worse: bias with GELU, the rotation of positions."""

from sharedqkv.kernels.backend import FUSED, fused_attention
from sharedqkv.kernels.gelu import bias_gelu
from sharedqkv.kernels.hardware import kernels_know
from sharedqkv.kernels.op import shared_kv_attention
from sharedqkv.kernels.rotation import rotate_alone
from sharedqkv.kernels.segments import Segments, segments_of

__all__ = [
    "FUSED",
    "Segments",
    "bias_gelu",
    "fused_attention",
    "kernels_know",
    "rotate_alone",
    "segments_of",
    "shared_kv_attention",
]
