"""Changes of `near:init=signs` that were tried on a CPU and are not among the ties; README.md says how they did.

    pip install --no-deps benchmarks/evidence/ties
    export PYTHONPATH=results/cpu/2026-11-18-fast-diagonals
    python -c "import attempts, runpy; runpy.run_path('benchmarks/evidence/screen_ties.py', run_name='__main__')" \
        near_turned_values --width 256 --heads 4 --rows 32 --steps 400 --warmup 100 --every 100 \
        --corpus CORPUS --output FOLDER

Two need more of a layer than a variant may have, so `attend` takes the place of `SharedQKVAttention.forward`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from sharedqkv_near import FastOptions, Near, NearFast
from torch import Tensor, nn
from transformers import initialization

from sharedqkv import Geometry, Projected, register_variant
from sharedqkv.attention.rotary import rotate
from sharedqkv.attention.shared import Shared, SharedOptions
from sharedqkv.models import encoder


@dataclass(frozen=True)
class SignsOptions(SharedOptions):
    init: str = "signs"


def attend(self: Any, hidden_BLD: Tensor, attention_mask: Any, rotation: Any, **kwargs: Any) -> tuple[Tensor, None]:
    variant, projected = self.self, self.self(self.output.sublayer_input(hidden_BLD))
    q, k, v = encoder.plain_queries_keys_values(projected, rotation)
    if isinstance(variant, NearMixed | NearFastMixed):
        maps_BHLL = (q @ k.transpose(2, 3) * self.scaling).softmax(dim=-1)
        found_BHLE = maps_BHLL @ v.transpose(1, 2).flatten(2)[:, None]
        return self.output((found_BHLE * variant.mixture()[:, None]).sum(dim=1), hidden_BLD, None), None
    turns = isinstance(variant, NearTurnedValues)
    interface = encoder.ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, None)
    v = rotate(v, rotation) if turns else v
    context_BLHK = interface(self, q, k, v, attention_mask, dropout=0.0, scaling=self.scaling, **kwargs)[0]
    if turns:
        back = (rotation[0], -rotation[1])
        context_BLHK = rotate(context_BLHK.transpose(1, 2), back).transpose(1, 2)
    return self.output(context_BLHK.flatten(2), hidden_BLD, projected.output_scale_HK.flatten()), None


encoder.SharedQKVAttention.forward = attend


@register_variant("near_turned_values")
class NearTurnedValues(Near):
    """Values are rotated with the keys and what is found is rotated back: it tells how far away a value stood."""

    Options = SignsOptions


def own_head(num_heads: int, head_size: int) -> Tensor:
    return torch.eye(num_heads).repeat_interleave(head_size, dim=1)


@register_variant("near_mixed")
class NearMixed(Near):
    """Each channel of the values has its own mixture of all heads' attention, at first its own head's."""

    Options = SignsOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.mix_HE = nn.Parameter(torch.empty(self.num_heads, geometry.width))

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        initialization.copy_(self.mix_HE, own_head(self.num_heads, self.head_size))

    def mixture(self) -> Tensor:
        return self.mix_HE


@register_variant("near_fast_mixed")
class NearFastMixed(NearFast):
    """The same, and all of it learns faster."""

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.mix_HE = nn.Parameter(torch.empty(self.num_heads, geometry.width))

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        initialization.copy_(self.mix_HE, own_head(self.num_heads, self.head_size) / self.speed)

    def mixture(self) -> Tensor:
        return self.mix_HE * self.speed


@register_variant("near_fast_diagonals")
class NearFastDiagonals(Near):
    """Only the diagonals learn faster, not the biases."""

    Options = FastOptions

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        for scale in (self.query_scale, self.key_scale, self.value_scale):
            initialization.copy_(scale, scale.detach() / self.options.speed)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        s_BHLK, speed = self.split_heads(self.shared(hidden_BLD)), self.options.speed
        queries, keys, values = (
            self.per_head(scale) * speed for scale in (self.query_scale, self.key_scale, self.value_scale)
        )
        q_BHLK = s_BHLK * queries[:, None] + self.per_head(self.query_bias)[:, None]
        k_BHLK = s_BHLK * keys[:, None] + self.per_head(self.key_bias)[:, None]
        return Projected(q_BHLK, k_BHLK, s_BHLK, output_scale_HK=values)


@register_variant("shared_fast")
class SharedFast(Shared):
    """Without the start: `shared:init=signs` whose diagonals learn faster."""

    Options = FastOptions

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        for scale in (self.query_scale, self.key_scale, self.value_scale):
            initialization.copy_(scale, scale.detach() / self.options.speed)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        made = super().forward(hidden_BLD)
        scales = (made.query_scale_HK, made.key_scale_HK, made.output_scale_HK)
        return Projected(made.q_BHLK, made.k_BGLK, made.v_BGLK, *(scale * self.options.speed for scale in scales))
