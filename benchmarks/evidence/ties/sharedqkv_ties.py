"""Ties under trial, outside the package until one has beaten the controls (docs/evidence_plan.md).

Each makes at least two of q, k and v from one projected tensor S; those that end in `_filtered` are controls. Taps
reach over to the next tokens whatever stands there, so variants with taps are for full rows of one document only.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from transformers import initialization

from sharedqkv import Geometry, Projected, Variant, register_variant
from sharedqkv.attention.grouped import Grouped
from sharedqkv.attention.narrow import Narrow
from sharedqkv.attention.options import require_bool, require_positive_int
from sharedqkv.attention.shared import Shared, random_signs_like


def init_taps(taps_R3E: Tensor, signs: bool) -> None:
    """Each role sees its own token only; with signs the first role, the queries, through random ones."""
    start = torch.zeros_like(taps_R3E)
    start[:, 1] = 1
    if signs:
        start[0, 1] = random_signs_like(start[0, 1])
    initialization.copy_(taps_R3E, start)


def filtered(states: Tensor, taps: Tensor) -> Tensor:
    """A filter over the token before, the token and the token after, for each channel: BLE by 3E, or BHLK by 3H1K."""
    before, here, after = taps.to(states.dtype)
    around = nn.functional.pad(states, (0, 0, 1, 1))
    return around[..., :-2, :] * before + states * here + around[..., 2:, :] * after


@register_variant("biased")
class Biased(Shared):
    """`shared` with biases after the diagonals of queries and keys: attention by position alone needs no content."""

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.query_bias = nn.Parameter(torch.empty(geometry.width))
        self.key_bias = nn.Parameter(torch.empty(geometry.width))

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        initialization.zeros_(self.query_bias)
        initialization.zeros_(self.key_bias)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        projected = super().forward(hidden_BLD)
        assert projected.query_scale_HK is not None
        assert projected.key_scale_HK is not None
        s_BHLK, biases = projected.v_BGLK, (self.per_head(self.query_bias), self.per_head(self.key_bias))
        scales = (projected.query_scale_HK, projected.key_scale_HK)
        q, k = (s_BHLK * scale[:, None] + bias[:, None] for scale, bias in zip(scales, biases, strict=True))
        return Projected(q, k, s_BHLK, output_scale_HK=projected.output_scale_HK)

    def parameter_formula(self) -> int:
        return super().parameter_formula() + 2 * self.geometry.width


@dataclass(frozen=True)
class TurnedOptions:
    random: bool = False
    """Angles at random, or those that make head h look at its h-th neighbour, left and right in turns."""

    def __post_init__(self) -> None:
        require_bool("random", self.random)


@register_variant("turned")
class Turned(Variant):
    """A complex diagonal on q: it commutes with the rotation, so that one is enough. k = v = S."""

    Options = TurnedOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.shared = nn.Linear(geometry.width, geometry.width, bias=False)
        self.real = nn.Parameter(torch.empty(self.num_heads, self.head_size // 2))
        self.imaginary = nn.Parameter(torch.empty(self.num_heads, self.head_size // 2))

    def init_weights(self, std: float) -> None:
        if self.options.random:
            angles = torch.rand_like(self.real) * 2 * torch.pi
        else:
            offsets = torch.tensor([(h // 2 + 1) * (-1) ** h for h in range(self.num_heads)]).to(self.real)
            angles = offsets[:, None] * 10000.0 ** -torch.linspace(0, 1, self.head_size // 2 + 1)[:-1].to(self.real)
        initialization.copy_(self.real, angles.cos())
        initialization.copy_(self.imaginary, angles.sin())

    def forward(self, hidden_BLD: Tensor) -> Projected:
        s_BHLK = self.split_heads(self.shared(hidden_BLD))
        first, second = s_BHLK.chunk(2, dim=-1)
        a, b = self.real[:, None].to(first.dtype), self.imaginary[:, None].to(first.dtype)
        return Projected(torch.cat((a * first - b * second, b * first + a * second), dim=-1), s_BHLK, s_BHLK)

    def parameter_formula(self) -> int:
        return self.geometry.width**2 + self.geometry.width

    def projection_flops(self) -> int:
        return 2 * self.geometry.width**2


class _Balance(Function):
    """One tensor as three, whose gradients get the norm of the values' before they are added."""

    @staticmethod
    def forward(ctx: Any, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return s.view_as(s), s.view_as(s), s.view_as(s)

    @staticmethod
    def backward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        norm, tiny = value.norm(), torch.finfo(torch.float32).tiny
        return value + query * (norm / (query.norm() + tiny)) + key * (norm / (key.norm() + tiny))


@register_variant("balanced")
class Balanced(Shared):
    """`shared` where no role's gradient drowns in that of the values."""

    def forward(self, hidden_BLD: Tensor) -> Projected:
        projected = super().forward(hidden_BLD)
        projected.q_BHLK, projected.k_BGLK, projected.v_BGLK = _Balance.apply(projected.v_BGLK)
        return projected


@dataclass(frozen=True)
class FilteredOptions:
    signs: bool = True
    """Whether the queries' middle tap starts with random signs."""

    def __post_init__(self) -> None:
        require_bool("signs", self.signs)


@register_variant("filtered")
class Filtered(Variant):
    """One projection and three filters of width three in place of the three diagonals."""

    Options = FilteredOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.shared = nn.Linear(geometry.width, geometry.width, bias=False)
        self.taps = nn.Parameter(torch.empty(3, 3, geometry.width))

    def init_weights(self, std: float) -> None:
        init_taps(self.taps, self.options.signs)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        s_BLD = self.shared(hidden_BLD)
        return Projected(*(self.split_heads(filtered(s_BLD, taps_3D)) for taps_3D in self.taps))

    def parameter_formula(self) -> int:
        return self.geometry.width**2 + 9 * self.geometry.width

    def projection_flops(self) -> int:
        return 2 * self.geometry.width**2


@dataclass(frozen=True)
class PairedOptions:
    heads: int = 11
    """Of half the usual size; eleven for eight have the weights of `shared` and 3 %."""
    taps: bool = False
    """Whether q, k and v are filtered; without, q has a diagonal."""

    def __post_init__(self) -> None:
        require_positive_int("heads", self.heads)
        require_bool("taps", self.taps)


@register_variant("paired")
class Paired(Variant):
    """q and k from one tensor, q with random signs, v apart; more heads of half the size for what that saves."""

    Options = PairedOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.num_heads = self.num_key_value_heads = options.heads
        self.head_size = geometry.head_size // 2
        self.query_key = nn.Linear(geometry.width, self.context_width)
        self.value = nn.Linear(geometry.width, self.context_width)
        if options.taps:
            self.taps = nn.Parameter(torch.empty(3, 3, self.context_width))
        else:
            self.query_scale = nn.Parameter(torch.empty(self.context_width))

    def init_weights(self, std: float) -> None:
        if self.options.taps:
            init_taps(self.taps, signs=True)
        else:
            initialization.copy_(self.query_scale, random_signs_like(self.query_scale))

    def forward(self, hidden_BLD: Tensor) -> Projected:
        if self.options.taps:
            s_BLE, v_BLE = self.query_key(hidden_BLD), self.value(hidden_BLD)
            made = (filtered(states, taps) for states, taps in zip((s_BLE, s_BLE, v_BLE), self.taps, strict=True))
            return Projected(*(self.split_heads(states) for states in made))
        s_BHLK, v_BHLK = self.project(hidden_BLD, self.query_key, self.value)
        return Projected(s_BHLK, s_BHLK, v_BHLK, query_scale_HK=self.per_head(self.query_scale))

    def parameter_formula(self) -> int:
        return (2 * (self.geometry.width + 1) + (9 if self.options.taps else 1)) * self.context_width

    def projection_flops(self) -> int:
        return 2 * 2 * self.geometry.width * self.context_width


@dataclass(frozen=True)
class CrossedOptions:
    num_query_heads: int = 7
    slices: int = 2
    """Of S; every ordered pair of two is the key and value head of some query heads."""

    def __post_init__(self) -> None:
        require_positive_int("num_query_heads", self.num_query_heads)
        require_positive_int("slices", self.slices)


@register_variant("crossed")
class Crossed(Variant):
    """Queries apart; of S one slice is the keys of some heads and the values of others, never both for one."""

    Options = CrossedOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.num_heads = self.num_key_value_heads = options.num_query_heads
        self.key_value_width = options.slices * self.head_size
        self.query = nn.Linear(geometry.width, self.context_width)
        self.key_value = nn.Linear(geometry.width, self.key_value_width)
        pairs = [(i, (i + step) % options.slices) for step in range(1, options.slices) for i in range(options.slices)]
        self.keys, self.values = zip(*(pairs[h % len(pairs)] for h in range(self.num_heads)), strict=True)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        q_BHLK, s_BGLK = self.project(hidden_BLD, self.query, self.key_value)
        return Projected(q_BHLK, s_BGLK[:, list(self.keys)], s_BGLK[:, list(self.values)])

    def parameter_formula(self) -> int:
        return (self.geometry.width + 1) * (self.context_width + self.key_value_width)

    def projection_flops(self) -> int:
        return 2 * self.geometry.width * (self.context_width + self.key_value_width)


@dataclass(frozen=True)
class TapsOptions:
    taps: bool = False
    """Whether q, k and v are filtered; without, k has a diagonal."""

    def __post_init__(self) -> None:
        require_bool("taps", self.taps)


@register_variant("lent")
class Lent(Variant):
    """One key and one value head for all; the last query head lends its tensor to the keys, with random signs."""

    Options = TapsOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.num_key_value_heads = 1
        self.query = nn.Linear(geometry.width, self.context_width)
        self.value = nn.Linear(geometry.width, self.head_size)
        if options.taps:
            self.query_taps = nn.Parameter(torch.empty(1, 3, self.context_width))
            self.key_value_taps = nn.Parameter(torch.empty(2, 3, self.head_size))
        else:
            self.key_scale = nn.Parameter(torch.empty(1, self.head_size))

    def init_weights(self, std: float) -> None:
        if self.options.taps:
            init_taps(self.query_taps, signs=False)
            init_taps(self.key_value_taps, signs=True)
        else:
            initialization.copy_(self.key_scale, random_signs_like(self.key_scale))

    def forward(self, hidden_BLD: Tensor) -> Projected:
        if self.options.taps:
            s_BLE, v_BLK = self.query(hidden_BLD), self.value(hidden_BLD)
            key_taps, value_taps = self.key_value_taps
            q_BLE = filtered(s_BLE, self.query_taps[0])
            made = (q_BLE, filtered(s_BLE[..., -self.head_size :], key_taps), filtered(v_BLK, value_taps))
            return Projected(*(self.split_heads(states) for states in made))
        q_BHLK, v_B1LK = self.project(hidden_BLD, self.query, self.value)
        return Projected(q_BHLK, q_BHLK[:, -1:] * self.key_scale[:, None].to(q_BHLK.dtype), v_B1LK)

    def parameter_formula(self) -> int:
        extra = 3 * self.context_width + 6 * self.head_size if self.options.taps else self.head_size
        return (self.geometry.width + 1) * (self.context_width + self.head_size) + extra

    def projection_flops(self) -> int:
        return 2 * self.geometry.width * (self.context_width + self.head_size)


@register_variant("grouped_filtered")
class GroupedFiltered(Grouped):
    """Control: what filters alone do for one key and one value head."""

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.query_taps = nn.Parameter(torch.empty(1, 3, self.context_width))
        self.key_value_taps = nn.Parameter(torch.empty(2, 3, self.key_value_width))

    def init_weights(self, std: float) -> None:
        init_taps(self.query_taps, signs=False)
        init_taps(self.key_value_taps, signs=False)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        layers, taps = (self.query, self.key, self.value), (*self.query_taps, *self.key_value_taps)
        made = (filtered(layer(hidden_BLD), own) for layer, own in zip(layers, taps, strict=True))
        return Projected(*(self.split_heads(states) for states in made))

    def parameter_formula(self) -> int:
        return super().parameter_formula() + 3 * self.context_width + 6 * self.key_value_width


@register_variant("narrow_filtered")
class NarrowFiltered(Narrow):
    """Control: what filters alone do for plain attention of `shared`'s size."""

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.taps = nn.Parameter(torch.empty(3, 3, self.context_width))

    def init_weights(self, std: float) -> None:
        init_taps(self.taps, signs=False)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        layers = (self.query, self.key, self.value)
        made = (filtered(layer(hidden_BLD), taps) for layer, taps in zip(layers, self.taps, strict=True))
        return Projected(*(self.split_heads(states) for states in made))

    def parameter_formula(self) -> int:
        return super().parameter_formula() + 9 * self.context_width
