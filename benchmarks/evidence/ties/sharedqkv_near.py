"""A start for rotary attention: biases on queries and keys with which heads first look mostly at one neighbour each.

Before training, content tells attention nothing, so that it mixes all tokens alike or, where one tensor makes queries
and keys, looks at itself. A bias on q and one on k meet in a term of position alone: with b_k in every plane of the
rotation and b_q the same turned by n tokens, it is largest n tokens away. Ties come first, then controls, which
have it too.
"""

from dataclasses import dataclass
from typing import Any

import torch
from sharedqkv_ties import Lent, random_signs_like
from torch import Tensor, nn
from transformers import initialization

from sharedqkv import Geometry, Projected, Variant, register_variant
from sharedqkv.attention.grouped import Grouped
from sharedqkv.attention.narrow import Narrow
from sharedqkv.attention.options import require_positive_int
from sharedqkv.attention.shared import Shared
from sharedqkv.attention.standard import Standard

STRENGTH = 4.0
"""Of the logit at the neighbour, where others are about 0."""
BASE = 10_000.0
"""Of the rotation: the default of `rotary_base`. With another one heads start elsewhere."""


def neighbour_biases(num_heads: int, head_size: int) -> tuple[Tensor, Tensor]:
    """Of the queries (H, K), and of the keys (K), the same for all heads: they look 1, -1, 2, -2 ... tokens away.

    Fast planes weigh more, as much as they turn: all alike, the slow ones would make a neighbourhood of hundreds.
    """
    speeds_k = BASE ** -(torch.arange(0, head_size, 2) / head_size)
    sizes_k = (STRENGTH * head_size**0.5 * speeds_k / speeds_k.sum()).sqrt()
    offsets_H = torch.tensor([(head // 2 + 1) * (-1.0) ** head for head in range(num_heads)])
    angles_Hk = offsets_H[:, None] * speeds_k
    queries_HK = torch.cat((sizes_k * angles_Hk.cos(), sizes_k * angles_Hk.sin()), dim=-1)
    return queries_HK, torch.cat((sizes_k, torch.zeros_like(sizes_k)))


class LooksNear(Variant):
    """In front of a variant: what it makes, with such biases."""

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.query_bias = nn.Parameter(torch.empty(self.num_heads * self.head_size))
        self.key_bias = nn.Parameter(torch.empty(self.num_key_value_heads * self.head_size))

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        queries_HK, keys_K = neighbour_biases(self.num_heads, self.head_size)
        initialization.copy_(self.query_bias, queries_HK.flatten())
        initialization.copy_(self.key_bias, keys_K.repeat(self.num_key_value_heads))

    def forward(self, hidden_BLD: Tensor) -> Projected:
        projected = super().forward(hidden_BLD)
        q_BHLK = _moved(projected.q_BHLK, projected.query_scale_HK, self.query_bias)
        k_BGLK = _moved(projected.k_BGLK, projected.key_scale_HK, self.key_bias)
        return Projected(q_BHLK, k_BGLK, projected.v_BGLK, output_scale_HK=projected.output_scale_HK)

    def fold(self, output: nn.Linear, rotary: bool) -> None:
        """A bias stands between the diagonals of queries and keys as a rotation does."""
        super().fold(output, rotary=True)

    def parameter_formula(self) -> int:
        return super().parameter_formula() + self.query_bias.numel() + self.key_bias.numel()


def _moved(states_BHLK: Tensor, scale_HK: Tensor | None, bias: Tensor) -> Tensor:
    # Under autocast parameters are wider than the states; promoted states would double the traffic.
    dtype, head_size = states_BHLK.dtype, states_BHLK.shape[-1]
    if scale_HK is not None:
        states_BHLK = states_BHLK * scale_HK[:, None].to(dtype)
    return states_BHLK + bias.view(-1, 1, head_size).to(dtype)


@register_variant("near")
class Near(LooksNear, Shared):
    """`shared` with such biases."""


class _Mapped(Shared):
    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.map = nn.Parameter(torch.empty(self.num_heads, self.head_size, self.head_size))

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        turns = [nn.init.orthogonal_(torch.empty(self.head_size, self.head_size)) for _ in range(self.num_heads)]
        initialization.copy_(self.map, torch.stack(turns))

    def forward(self, hidden_BLD: Tensor) -> Projected:
        projected = super().forward(hidden_BLD)
        projected.q_BHLK = torch.matmul(projected.q_BHLK, self.map)
        return projected

    def parameter_formula(self) -> int:
        return super().parameter_formula() + self.map.numel()

    def projection_flops(self) -> int:
        return super().projection_flops() + 2 * self.map.numel()


@register_variant("near_mapped")
class NearMapped(LooksNear, _Mapped):
    """`near` with a d_h × d_h map on the queries of each head, at first a random turn."""


@dataclass(frozen=True)
class WideOptions:
    slices: int = 2
    """Of S, one a head, that the queries and keys of a head have: its own and those of the next heads."""

    def __post_init__(self) -> None:
        require_positive_int("slices", self.slices)


class _Wide(Variant):
    Options = WideOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        if options.slices > geometry.num_heads:
            raise ValueError(f"slices must be at most the number of heads, {geometry.num_heads}, not {options.slices}")
        self.head_size = options.slices * geometry.head_size
        self.shared = nn.Linear(geometry.width, geometry.width, bias=False)
        self.query_scale = nn.Parameter(torch.empty(self.num_heads, self.head_size))
        self.key_scale = nn.Parameter(torch.empty(self.num_heads, self.head_size))
        self.value_scale = nn.Parameter(torch.empty(geometry.width))

    @property
    def context_width(self) -> int:
        return self.geometry.width  # of the values, which have one slice

    def init_weights(self, std: float) -> None:
        initialization.copy_(self.query_scale, random_signs_like(self.query_scale))
        initialization.ones_(self.key_scale)
        initialization.ones_(self.value_scale)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        s_BHLV = self.shared(hidden_BLD).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        wide_BHLK = torch.cat([s_BHLV.roll(-step, dims=1) for step in range(self.options.slices)], dim=-1)
        value_scale_HV = self.value_scale.view(self.num_heads, -1)
        return Projected(wide_BHLK, wide_BHLK, s_BHLV, self.query_scale, self.key_scale, value_scale_HV)

    def parameter_formula(self) -> int:
        width = self.geometry.width
        return width**2 + (2 * self.options.slices + 1) * width

    def projection_flops(self) -> int:
        return 2 * self.geometry.width**2


@register_variant("near_wide")
class NearWide(LooksNear, _Wide):
    """`near:init=signs` whose queries and keys have more of S than a head's values: S is there, only time is spent."""


class _Single(Variant):
    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.num_key_value_heads = 1
        self.query = nn.Linear(geometry.width, self.context_width)
        self.key_value = nn.Linear(geometry.width, self.head_size)
        self.key_scale = nn.Parameter(torch.empty(self.head_size))

    def init_weights(self, std: float) -> None:
        initialization.ones_(self.key_scale)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        q_BHLK, s_B1LK = self.project(hidden_BLD, self.query, self.key_value)
        return Projected(q_BHLK, s_B1LK, s_B1LK, key_scale_HK=self.key_scale[None])

    def parameter_formula(self) -> int:
        return (self.geometry.width + 1) * (self.context_width + self.head_size) + self.head_size

    def projection_flops(self) -> int:
        return 2 * self.geometry.width * (self.context_width + self.head_size)


@register_variant("near_single")
class NearSingle(LooksNear, _Single):
    """Queries apart; one head that is the keys and, without diagonal and bias, the values of all."""


@register_variant("near_lent")
class NearLent(LooksNear, Lent):
    """The tie `lent`: one head's queries, with a diagonal, are the keys of all; values apart."""


@register_variant("near_standard")
class NearStandard(LooksNear, Standard):
    pass


@register_variant("near_narrow")
class NearNarrow(LooksNear, Narrow):
    pass


@register_variant("near_grouped")
class NearGrouped(LooksNear, Grouped):
    pass
