"""Five changes of `near:init=signs` that were tried on a CPU; README.md says how they did.

    pip install --no-deps benchmarks/evidence/ties
    export PYTHONPATH=results/cpu/2026-11-18-attention-forms
    python -c "import attempts, runpy; runpy.run_path('benchmarks/evidence/screen_ties.py', run_name='__main__')" \
        near_gated --width 256 --heads 4 --rows 32 --steps 1500 --warmup 100 --decay 150 --every 250 \
        --corpus CORPUS --output FOLDER

Three need more of a layer than a variant may have: its attention is called through `attend`, which this puts in the
place of the package's `SharedQKVAttention.forward`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from sharedqkv_near import STRENGTH, Near, neighbour_biases
from sharedqkv_ties import random_signs_like
from torch import Tensor, nn
from transformers import initialization

from sharedqkv import Geometry, Projected, register_variant
from sharedqkv.attention.shared import SharedOptions
from sharedqkv.models import encoder


@dataclass(frozen=True)
class SignsOptions(SharedOptions):
    init: str = "signs"


def attend(self: Any, hidden_BLD: Tensor, attention_mask: Any, rotation: Any, **kwargs: Any) -> tuple[Tensor, None]:
    def mixed(projected: Projected) -> Tensor:
        q, k, v = encoder.plain_queries_keys_values(projected, rotation)
        interface = encoder.ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, None)
        return interface(self, q, k, v, attention_mask, dropout=0.0, scaling=self.scaling, **kwargs)[0]

    projected = self.self(self.output.sublayer_input(hidden_BLD))
    context_BLHK, scale_HK = mixed(projected), projected.output_scale_HK
    if isinstance(self.self, NearGated):
        context_BLHK = context_BLHK * self.self.gate(projected.v_BGLK)
    if isinstance(self.self, NearTwice):
        again = self.self.again(projected.v_BGLK, context_BLHK.transpose(1, 2))
        context_BLHK = context_BLHK * scale_HK + mixed(again) * again.output_scale_HK
        scale_HK = None
    scale_E = None if scale_HK is None else scale_HK.flatten()
    hidden_BLD = self.output(context_BLHK.flatten(2), hidden_BLD, scale_E)
    if isinstance(self.self, NearRounds):
        again = self.self.again(self.output.sublayer_input(hidden_BLD))
        hidden_BLD = self.output(mixed(again).flatten(2), hidden_BLD, again.output_scale_HK.flatten())
    return hidden_BLD, None


encoder.SharedQKVAttention.forward = attend


@register_variant("near_gated")
class NearGated(Near):
    """What a head found is multiplied by 2 σ(S ⊙ d + b), 1 at the start in the mean."""

    Options = SignsOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.gate_scale = nn.Parameter(torch.empty(geometry.width))
        self.gate_bias = nn.Parameter(torch.empty(geometry.width))

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        initialization.ones_(self.gate_scale)
        initialization.zeros_(self.gate_bias)

    def gate(self, s_BHLK: Tensor) -> Tensor:
        scale, bias = (self.per_head(weight)[:, None] for weight in (self.gate_scale, self.gate_bias))
        return 2 * torch.sigmoid(s_BHLK * scale + bias).transpose(1, 2)


class SecondRound(Near):
    """Diagonals and biases of a second round of attention over one Ws."""

    Options = SignsOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        names = ("query_scale", "key_scale", "value_scale", "query_bias", "key_bias")
        self.second = nn.ParameterDict({name: torch.empty(geometry.width) for name in names})

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        initialization.copy_(self.second["query_scale"], random_signs_like(self.second["query_scale"]))
        initialization.ones_(self.second["key_scale"])
        initialization.ones_(self.second["value_scale"])
        queries_HK, keys_K = neighbour_biases(self.num_heads, self.head_size)
        initialization.copy_(self.second["query_bias"], queries_HK.flatten())
        initialization.copy_(self.second["key_bias"], keys_K.repeat(self.num_heads))

    def roles(self, s_BHLK: Tensor) -> Projected:
        w = {name: self.per_head(weight)[:, None] for name, weight in self.second.items()}
        q_BHLK = s_BHLK * w["query_scale"] + w["query_bias"]
        k_BHLK = s_BHLK * w["key_scale"] + w["key_bias"]
        return Projected(q_BHLK, k_BHLK, s_BHLK, output_scale_HK=self.per_head(self.second["value_scale"]))


@register_variant("near_rounds")
class NearRounds(SecondRound):
    """A layer attends twice, one after the other, with the same Ws and Wo."""

    def again(self, hidden_BLD: Tensor) -> Projected:
        return self.roles(self.split_heads(self.shared(hidden_BLD)))


@register_variant("near_twice")
class NearTwice(SecondRound):
    """A second round before Wo, over S plus what the first round found."""

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.own = nn.Parameter(torch.empty(geometry.width))
        self.found = nn.Parameter(torch.empty(geometry.width))

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        initialization.ones_(self.own)
        initialization.ones_(self.found)

    def again(self, s_BHLK: Tensor, found_BHLK: Tensor) -> Projected:
        own, found = (self.per_head(weight)[:, None] for weight in (self.own, self.found))
        return self.roles(s_BHLK * own + found_BHLK * found)


@register_variant("near_first")
class NearFirst(Near):
    """Values are S plus that of the first layer by a diagonal."""

    Options = SignsOptions
    first: "NearFirst | None" = None
    """The layer whose weights were drawn first: one model a process."""

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.mix = nn.Parameter(torch.empty(geometry.width))

    def init_weights(self, std: float) -> None:
        NearFirst.first = NearFirst.first or self
        super().init_weights(std)
        initialization.constant_(self.mix, 0.5)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        projected = super().forward(hidden_BLD)
        if self is NearFirst.first:
            NearFirst.values_BHLK = projected.v_BGLK
        else:
            projected.v_BGLK = projected.v_BGLK + NearFirst.values_BHLK * self.per_head(self.mix)[:, None]
        return projected


@dataclass(frozen=True)
class StrongOptions(SignsOptions):
    strength: float = 8.0
    """Of the logit at the neighbour."""


@register_variant("near_strong")
class NearStrong(Near):
    Options = StrongOptions

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        factor = (self.options.strength / STRENGTH) ** 0.5
        for bias in (self.query_bias, self.key_bias):
            initialization.copy_(bias, bias.detach() * factor)
