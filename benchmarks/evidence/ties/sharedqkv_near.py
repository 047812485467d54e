"""Ties and controls with biases on queries and keys with which heads first look mostly at one neighbour each.

The package has the biases (attention/neighbours.py) and what was accepted: `near_wide:speed=8` is its `overlapping`.
Ties come first, then controls, which have the biases too.
"""

from dataclasses import dataclass
from typing import Any

import torch
from sharedqkv_ties import Lent, filtered
from torch import Tensor, nn
from transformers import initialization

from sharedqkv import Geometry, Projected, Variant, register_variant
from sharedqkv.attention import overlapping
from sharedqkv.attention.grouped import Grouped
from sharedqkv.attention.narrow import Narrow
from sharedqkv.attention.neighbours import BASE, STRENGTH, LooksNear, neighbour_biases  # noqa: F401 - records import all
from sharedqkv.attention.neighbours import moved as _moved  # noqa: F401 - likewise
from sharedqkv.attention.options import require_bool, require_positive_int
from sharedqkv.attention.shared import Shared, SharedOptions
from sharedqkv.attention.standard import Standard


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
class WideOptions(overlapping.WideOptions):
    speed: int = 1
    """As of `near_fast`."""


@dataclass(frozen=True)
class WideSharedOptions(WideOptions):
    filtered: bool = False
    """Whether S goes through a filter first, as in `near_filtered`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_bool("filtered", self.filtered)


class _WideShared(overlapping.WideShared):
    Options = WideSharedOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.register_parameter("taps", nn.Parameter(torch.empty(3, geometry.width)) if options.filtered else None)

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        if self.taps is not None:
            init_filter(self.taps, self.speed)

    def slices(self, hidden_BLD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s_BHLV, _, _ = super().slices(hidden_BLD)
        if self.taps is not None:
            s_BHLV = filtered(s_BHLV, (self.taps * self.speed).view(3, self.num_heads, 1, -1))
        return s_BHLV, s_BHLV, s_BHLV

    def parameter_formula(self) -> int:
        return super().parameter_formula() + (0 if self.taps is None else self.taps.numel())


@register_variant("near_wide")
class NearWide(LooksNear, _WideShared):
    """`near:init=signs` whose queries and keys have more of S than a head's values: S is there, only time is spent."""


class _WideStandard(overlapping.WideHeads):
    Options = WideOptions

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
