"""A start for rotary attention: biases on queries and keys with which heads first look mostly at one neighbour each.

Before training, content tells attention nothing, so that it mixes all tokens alike or, where one tensor makes queries
and keys, looks at itself. A bias on q and one on k meet in a term of position alone: with b_k in every plane of the
rotation and b_q the same turned by n tokens, it is largest n tokens away. Ties come first, then controls, which
have it too.
"""

from dataclasses import dataclass
from typing import Any

import torch
from sharedqkv_ties import Lent, filtered, random_signs_like
from torch import Tensor, nn
from transformers import initialization

from sharedqkv import Geometry, Projected, Variant, register_variant
from sharedqkv.attention.grouped import Grouped
from sharedqkv.attention.narrow import Narrow
from sharedqkv.attention.options import require_bool, require_positive_int
from sharedqkv.attention.shared import Shared, SharedOptions
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

    speed = 1.0
    """How many times as fast the biases learn: Adam moves every weight about as far a step, however large it is."""

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.query_bias = nn.Parameter(torch.empty(self.num_heads * self.head_size))
        self.key_bias = nn.Parameter(torch.empty(self.num_key_value_heads * self.head_size))

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        queries_HK, keys_K = neighbour_biases(self.num_heads, self.head_size)
        initialization.copy_(self.query_bias, queries_HK.flatten() / self.speed)
        initialization.copy_(self.key_bias, keys_K.repeat(self.num_key_value_heads) / self.speed)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        projected = super().forward(hidden_BLD)
        q_BHLK = _moved(projected.q_BHLK, projected.query_scale_HK, self.query_bias * self.speed)
        k_BGLK = _moved(projected.k_BGLK, projected.key_scale_HK, self.key_bias * self.speed)
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


@dataclass(frozen=True)
class FastOptions(SharedOptions):
    init: str = "signs"
    speed: int = 8
    """How many times as fast diagonals and biases learn as the other weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive_int("speed", self.speed)


class _FastShared(Shared):
    """Diagonals in units of 1 / speed, for use behind `LooksNear`, whose `fold` never merges two of them.

    Adam moves an entry of Ws (0.02 at first) and of a diagonal (1) alike a step, so that the roles, which only the
    diagonals tell apart, come apart far more slowly than S changes.
    """

    Options = FastOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.speed = options.speed

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        for scale in (self.query_scale, self.key_scale, self.value_scale):
            if scale is not None:
                initialization.copy_(scale, scale.detach() / self.speed)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        made = super().forward(hidden_BLD)
        scales = (made.query_scale_HK, made.key_scale_HK, made.output_scale_HK)
        full = [None if scale_HK is None else scale_HK * self.speed for scale_HK in scales]
        return Projected(made.q_BHLK, made.k_BGLK, made.v_BGLK, *full)

    def fold(self, output: nn.Linear, rotary: bool) -> None:
        if self.value_scale is not None:
            output.weight.mul_(self.speed)
        super().fold(output, rotary)


@register_variant("near_fast")
class NearFast(LooksNear, _FastShared):
    """`near:init=signs` whose diagonals and biases learn faster."""


def init_filter(taps_3E: Tensor, speed: float) -> None:
    """Each token sees itself only."""
    start = torch.zeros_like(taps_3E)
    start[1] = 1 / speed
    initialization.copy_(taps_3E, start)


class _FilteredShared(_FastShared):
    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.taps = nn.Parameter(torch.empty(3, geometry.width))

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        init_filter(self.taps, self.speed)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        made = super().forward(hidden_BLD)
        s_BHLK = filtered(made.v_BGLK, (self.taps * self.speed).view(3, self.num_heads, 1, -1))
        return Projected(s_BHLK, s_BHLK, s_BHLK, made.query_scale_HK, made.key_scale_HK, made.output_scale_HK)

    def parameter_formula(self) -> int:
        return super().parameter_formula() + self.taps.numel()


@register_variant("near_filtered")
class NearFiltered(LooksNear, _FilteredShared):
    """`near_fast` with one filter over the neighbours' S, which serves all roles. Full rows of one document only."""


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
    speed: int = 1
    """As of `near_fast`."""

    def __post_init__(self) -> None:
        require_positive_int("slices", self.slices)
        require_positive_int("speed", self.speed)


@dataclass(frozen=True)
class WideSharedOptions(WideOptions):
    filtered: bool = False
    """Whether S goes through a filter first, as in `near_filtered`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_bool("filtered", self.filtered)


class _Wide(Variant):
    """Queries and keys of a head have its own slice of what makes them and those of the next heads, each slice with its
    own diagonal; values have one. A subclass makes the three."""

    Options = WideOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        if options.slices > geometry.num_heads:
            raise ValueError(f"slices must be at most the number of heads, {geometry.num_heads}, not {options.slices}")
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
            initialization.constant_(scale, 1 / self.speed)

    def slices(self, hidden_BLD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of queries, keys and values, each BHLV."""
        raise NotImplementedError

    def split_slices(self, states_BLD: Tensor) -> Tensor:
        return states_BLD.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        *roles, v_BHLV = self.slices(hidden_BLD)
        wide = [torch.cat([s.roll(-step, dims=1) for step in range(self.options.slices)], dim=-1) for s in roles]
        scales = (self.query_scale, self.key_scale, self.value_scale.view(self.num_heads, -1))
        return Projected(*wide, v_BHLV, *(scale * self.speed for scale in scales))

    def parameter_formula(self) -> int:
        return (2 * self.options.slices + 1) * self.geometry.width


class _WideShared(_Wide):
    Options = WideSharedOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.shared = nn.Linear(geometry.width, geometry.width, bias=False)
        self.register_parameter("taps", nn.Parameter(torch.empty(3, geometry.width)) if options.filtered else None)

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        initialization.copy_(self.query_scale, random_signs_like(self.query_scale) / self.speed)
        if self.taps is not None:
            init_filter(self.taps, self.speed)

    def slices(self, hidden_BLD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s_BHLV = self.split_slices(self.shared(hidden_BLD))
        if self.taps is not None:
            s_BHLV = filtered(s_BHLV, (self.taps * self.speed).view(3, self.num_heads, 1, -1))
        return s_BHLV, s_BHLV, s_BHLV

    def parameter_formula(self) -> int:
        taps = 0 if self.taps is None else self.taps.numel()
        return super().parameter_formula() + self.geometry.width**2 + taps

    def projection_flops(self) -> int:
        return 2 * self.geometry.width**2


@register_variant("near_wide")
class NearWide(LooksNear, _WideShared):
    """`near:init=signs` whose queries and keys have more of S than a head's values: S is there, only time is spent."""


class _WideStandard(_Wide):
    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.query, self.key, self.value = (nn.Linear(geometry.width, geometry.width) for _ in range(3))

    def slices(self, hidden_BLD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (self.split_slices(layer(hidden_BLD)) for layer in (self.query, self.key, self.value))
        return q, k, v

    def parameter_formula(self) -> int:
        return super().parameter_formula() + 3 * (self.geometry.width + 1) * self.geometry.width

    def projection_flops(self) -> int:
        return 6 * self.geometry.width**2


@register_variant("near_wide_standard")
class NearWideStandard(LooksNear, _WideStandard):
    """Control of `near_wide`: plain attention can give a head the next head's queries and keys as well."""


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


@register_variant("near_standard_fast")
class NearStandardFast(NearStandard):
    """What biases that learn faster, as those of `near_fast`, do for plain attention."""

    speed = 8.0


@register_variant("near_narrow")
class NearNarrow(LooksNear, Narrow):
    pass


@register_variant("near_grouped")
class NearGrouped(LooksNear, Grouped):
    pass
