"""Two ties that were tried beside those of benchmarks/evidence/ties; README.md says how they did.

    pip install --no-deps benchmarks/evidence/ties
    export PYTHONPATH=results/cpu/2026-11-18-near-longer
    python -c "import attempts, runpy; runpy.run_path('benchmarks/evidence/screen_ties.py', run_name='__main__')" \
        near_fusable --steps 3500 --seed 0 --corpus CORPUS --output FOLDER
"""

from dataclasses import dataclass
from typing import Any

import torch
from sharedqkv_near import BASE, STRENGTH, neighbour_biases
from torch import Tensor, nn
from transformers import initialization

from sharedqkv import Geometry, Projected, register_variant
from sharedqkv.attention.shared import Shared, SharedOptions


@dataclass(frozen=True)
class StartOptions(SharedOptions):
    bias: bool = True
    signs: float = 0.0
    """Planes of the rotation slower than this get random signs on dq."""


@register_variant("start")
class Start(Shared):
    """`shared` with a bias on Ws and no other new parameter: dq turns that bias towards a neighbour."""

    Options = StartOptions

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        speeds_k = BASE ** -(torch.arange(0, self.head_size, 2) / self.head_size)
        sizes_k = (STRENGTH * self.head_size**0.5 * speeds_k / speeds_k.sum() / 2).sqrt()
        offsets_H = torch.tensor([(head // 2 + 1) * (-1.0) ** head for head in range(self.num_heads)])
        angles_Hk = offsets_H[:, None] * speeds_k
        # Turns a bias that is alike in both channels of a plane.
        query_HK = torch.cat((angles_Hk.cos() - angles_Hk.sin(), angles_Hk.cos() + angles_Hk.sin()), dim=-1)
        signs_HK = torch.randint(0, 2, query_HK.shape).float() * 2 - 1
        query_HK = torch.where((speeds_k < self.options.signs).repeat(2), query_HK * signs_HK, query_HK)
        initialization.copy_(self.shared.bias, torch.cat((sizes_k, sizes_k)).repeat(self.num_heads))
        initialization.copy_(self.query_scale, query_HK.flatten())


@dataclass(frozen=True)
class FusableOptions(SharedOptions):
    bias: bool = True
    init: str = "signs"


@register_variant("near_fusable")
class NearFusable(Shared):
    """`near` whose bias on the keys is that of S, so that keys and values stay one tensor."""

    Options = FusableOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.query_bias = nn.Parameter(torch.empty(geometry.width))

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        queries_HK, keys_K = neighbour_biases(self.num_heads, self.head_size)
        keys_D = keys_K.repeat(self.num_heads)
        initialization.copy_(self.shared.bias, keys_D)
        initialization.copy_(self.query_bias, queries_HK.flatten() - self.query_scale.detach() * keys_D)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        projected = super().forward(hidden_BLD)
        scale_HK, bias_HK = self.per_head(self.query_scale), self.per_head(self.query_bias)
        projected.q_BHLK = projected.q_BHLK * scale_HK[:, None] + bias_HK[:, None]
        projected.query_scale_HK = None
        return projected

    def parameter_formula(self) -> int:
        return super().parameter_formula() + self.geometry.width
