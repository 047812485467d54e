"""As `shared`, but the queries and keys of a head overlap with those of the next heads, and first look at a neighbour.

S = X Ws; q = S' ⊙ dq + bq and k = S' ⊙ dk + bk, where S' is the head's own slice of S and those of the next heads, and
v = S ⊙ dv with the one slice. S is there already, so that more of it costs time, but no matrix. V is a slice's size.

The roles are told apart by diagonals and biases alone, and a diagonal begins 50 times as large as the entries of Ws.
Adam moves all weights alike a step, so both are kept in units of 1 / speed.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization

from sharedqkv.attention.base import Geometry, Projected, Variant
from sharedqkv.attention.neighbours import LooksNear
from sharedqkv.attention.options import require_choice, require_positive_int
from sharedqkv.attention.registry import register_variant
from sharedqkv.attention.shared import random_signs_like


@dataclass(frozen=True)
class WideOptions:
    slices: int = 2
    """Of S, one a head, that the queries and keys of a head have: its own and those of the next heads."""
    speed: int = 8
    """How many times as fast diagonals and biases learn as the other weights."""

    def __post_init__(self) -> None:
        require_positive_int("slices", self.slices)
        require_positive_int("speed", self.speed)


class WideHeads(Variant):
    """Queries and keys of a head have its own slice of what makes them and those of the next heads, each slice with its
    own diagonal; values have one. A subclass makes the three."""

    Options = WideOptions
    value_scale: nn.Parameter | None

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        if options.slices > geometry.num_heads:
            raise ValueError(
                f"attention option 'slices' must be at most the number of heads, {geometry.num_heads}, not "
                f"{options.slices}: each is another head's. Take fewer slices or more heads"
            )
        self.speed = options.speed
        self.head_size = options.slices * geometry.head_size
        self.query_scale = nn.Parameter(torch.empty(self.num_heads, self.head_size))
        self.key_scale = nn.Parameter(torch.empty(self.num_heads, self.head_size))
        self.value_scale = nn.Parameter(torch.empty(geometry.width))

    @property
    def context_width(self) -> int:
        return self.geometry.width  # of the values, which have one slice

    def init_weights(self, std: float) -> None:
        for scale in (self.query_scale, self.key_scale, self.value_scale):
            if scale is not None:
                initialization.constant_(scale, 1 / self.speed)

    def slices(self, hidden_BLD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of queries, keys and values, each BHLV."""
        raise NotImplementedError

    def split_slices(self, states_BLD: Tensor) -> Tensor:
        return states_BLD.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        *roles, v_BHLV = self.slices(hidden_BLD)
        q, k = (torch.cat([s.roll(-step, dims=1) for step in range(self.options.slices)], dim=-1) for s in roles)
        value_scale_HV = None if self.value_scale is None else self.value_scale.view(self.num_heads, -1) * self.speed
        return Projected(q, k, v_BHLV, self.query_scale * self.speed, self.key_scale * self.speed, value_scale_HV)

    def parameter_formula(self) -> int:
        return (2 * self.options.slices + 1) * self.geometry.width


class WideShared(WideHeads):
    """One matrix makes all three, and random signs keep a token's own key from fitting its query best."""

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.shared = nn.Linear(geometry.width, geometry.width, bias=False)

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        initialization.copy_(self.query_scale, random_signs_like(self.query_scale) / self.speed)

    def slices(self, hidden_BLD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s_BHLV = self.split_slices(self.shared(hidden_BLD))
        return s_BHLV, s_BHLV, s_BHLV

    def parameter_formula(self) -> int:
        return super().parameter_formula() + self.geometry.width**2

    def projection_flops(self) -> int:
        return 2 * self.geometry.width**2


@dataclass(frozen=True)
class OverlappingOptions(WideOptions):
    diagonals: str = "query_key_value"
    """Which there are: all, or `query_key` in a model that was folded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("diagonals", self.diagonals, ("query_key_value", "query_key"))


@register_variant("overlapping")
class Overlapping(LooksNear, WideShared):
    Options = OverlappingOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        if options.diagonals == "query_key":
            self.value_scale = None

    def fold(self, output: nn.Linear, rotary: bool) -> None:
        """dv goes into the columns of Wo; biases stand between the other diagonals."""
        if self.value_scale is not None:
            output.weight.mul_(self.value_scale * self.speed)
            self.value_scale = None
            self.options = replace(self.options, diagonals="query_key")

    def parameter_formula(self) -> int:
        folded = 0 if self.options.diagonals == "query_key_value" else self.geometry.width
        return super().parameter_formula() - folded
