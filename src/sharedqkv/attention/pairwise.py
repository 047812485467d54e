"""Symmetric attention with a free d_h × d_h map between queries and keys, one a head (Courtois et al. 2024)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization

from sharedqkv.attention.base import Geometry, Projected
from sharedqkv.attention.options import require_choice
from sharedqkv.attention.registry import register_variant
from sharedqkv.attention.symmetric import Symmetric


@dataclass(frozen=True)
class PairwiseOptions:
    init: str = "normal"
    """How the maps start: `normal` is the authors' N(0, 1), `identity` starts as symmetric attention."""

    def __post_init__(self) -> None:
        require_choice("init", self.init, ("normal", "identity"))


@register_variant("pairwise")
class Pairwise(Symmetric):
    Options = PairwiseOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.pairing = nn.Parameter(torch.empty(self.num_heads, self.head_size, self.head_size))

    def init_weights(self, std: float) -> None:
        if self.options.init == "normal":
            initialization.normal_(self.pairing, mean=0.0, std=1.0)
        else:
            initialization.copy_(self.pairing, torch.eye(self.head_size).expand_as(self.pairing))

    def forward(self, hidden_BLD: Tensor) -> Projected:
        projected = super().forward(hidden_BLD)
        projected.q_BHLK = torch.matmul(projected.q_BHLK, self.pairing)
        return projected

    def parameter_formula(self) -> int:
        return super().parameter_formula() + self.num_heads * self.head_size**2

    def projection_flops(self) -> int:
        return super().projection_flops() + 2 * self.num_heads * self.head_size**2
