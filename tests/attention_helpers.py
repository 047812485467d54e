"""Small variants on their own."""

from typing import Any

import torch
from torch import Tensor

from sharedqkv.attention import Geometry, Variant, build_variant
from sharedqkv.attention.rotary import Rotation, plain_queries_keys_values, rotation_for

WIDTH, HEAD_COUNT = 24, 3


def build(name: str, width: int = WIDTH, num_heads: int = HEAD_COUNT, std: float = 0.5, **options: Any) -> Variant:
    """A variant in double precision with random weights, its own parts initialised by itself."""
    variant = build_variant(name, Geometry(width, num_heads), options).double()
    with torch.no_grad():
        for parameter in variant.parameters():
            parameter.normal_(std=std)
    variant.init_weights(std)
    return variant


def hidden_states(width: int = WIDTH) -> Tensor:
    return torch.randn(2, 5, width, dtype=torch.float64)


def rotation(head_size: int) -> Rotation:
    return rotation_for(torch.arange(5)[None], head_size, 100.0, torch.float64)


def logits(variant: Variant, hidden_BLD: Tensor, turn: Rotation | None = None) -> Tensor:
    q, k, _ = plain_queries_keys_values(variant(hidden_BLD), turn)
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).transpose(-1, -2)


def is_symmetric(logits_BHLL: Tensor) -> bool:
    return torch.allclose(logits_BHLL, logits_BHLL.transpose(-1, -2), atol=1e-9)
