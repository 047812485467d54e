"""Separate but factored weights: each of Wq, Wk, Wv is a product of rank r. A control for `shared`.

At the default rank d/6 the three products have d² weights in all, as many as the one matrix of `shared`.
"""

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import initialization

from sharedqkv.attention.base import Geometry, Projected, Variant
from sharedqkv.attention.options import require_positive_int
from sharedqkv.attention.registry import register_variant


@dataclass(frozen=True)
class LowRankOptions:
    rank: int | None = None
    """Rank of each product; by default a sixth of the width."""

    def __post_init__(self) -> None:
        if self.rank is not None:
            require_positive_int("rank", self.rank)


class LowRankLinear(nn.Module):
    def __init__(self, width: int, rank: int):
        super().__init__()
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width)

    def forward(self, hidden_BLD: Tensor) -> Tensor:
        return self.up(self.down(hidden_BLD))


@register_variant("low_rank")
class LowRank(Variant):
    Options = LowRankOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.rank = options.rank if options.rank is not None else max(1, geometry.width // 6)
        if self.rank > geometry.width:
            raise ValueError(f"attention option 'rank' must be at most hidden_size {geometry.width}, not {self.rank}")
        self.query = LowRankLinear(geometry.width, self.rank)
        self.key = LowRankLinear(geometry.width, self.rank)
        self.value = LowRankLinear(geometry.width, self.rank)

    def init_weights(self, std: float) -> None:
        # Both factors at s give products at s² √rank: choose s so that the products start as spread as standard's.
        factor_std = math.sqrt(std / math.sqrt(self.rank))
        for projection in (self.query, self.key, self.value):
            initialization.normal_(projection.down.weight, std=factor_std)
            initialization.normal_(projection.up.weight, std=factor_std)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        return Projected(*self.project(hidden_BLD, self.query, self.key, self.value))

    def parameter_formula(self) -> int:
        return 3 * (2 * self.geometry.width * self.rank + self.geometry.width)

    def projection_flops(self) -> int:
        return 2 * 3 * 2 * self.geometry.width * self.rank
