"""Five ties that were tried beside those of benchmarks/evidence/ties and not taken; README.md says how they did.

    pip install --no-deps benchmarks/evidence/ties
    export PYTHONPATH=results/cpu/2026-11-17-tie-attempts
    python -c "import attempts, runpy; runpy.run_path('benchmarks/evidence/screen_ties.py', run_name='__main__')" \
        near_double --seed 0 --corpus CORPUS --output FOLDER
"""

from typing import Any

import torch
from sharedqkv_near import LooksNear, _moved, _Single
from torch import Tensor, nn
from transformers import initialization

from sharedqkv import Geometry, Projected, register_variant
from sharedqkv.attention.shared import Shared


class _SingleGelu(_Single):
    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.value_scale = nn.Parameter(torch.empty(self.head_size))

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        initialization.copy_(self.value_scale, torch.full_like(self.value_scale, 2.0))

    def forward(self, hidden_BLD: Tensor) -> Projected:
        projected = super().forward(hidden_BLD)
        projected.v_BGLK = nn.functional.gelu(projected.v_BGLK * self.value_scale)
        return projected

    def parameter_formula(self) -> int:
        return super().parameter_formula() + self.value_scale.numel()


@register_variant("near_single_gelu")
class NearSingleGelu(LooksNear, _SingleGelu):
    """`near_single` whose values are no multiple of its keys: GELU of the same tensor."""


class _SharedGelu(Shared):
    def forward(self, hidden_BLD: Tensor) -> Projected:
        p = super().forward(hidden_BLD)
        assert p.output_scale_HK is not None
        values = nn.functional.gelu(p.v_BGLK * 2 * p.output_scale_HK[:, None])
        return Projected(p.q_BHLK, p.k_BGLK, values, query_scale_HK=p.query_scale_HK, key_scale_HK=p.key_scale_HK)


@register_variant("near_gelu")
class NearGelu(LooksNear, _SharedGelu):
    """`near` with such values."""


class _Double(_Single):
    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.num_heads = self.num_key_value_heads = 7
        self.query = nn.Linear(geometry.width, self.context_width)
        self.key_value = nn.Linear(geometry.width, 2 * self.head_size)
        self.key_scale = nn.Parameter(torch.empty(2 * self.head_size))

    def forward(self, hidden_BLD: Tensor) -> Projected:
        q_BHLK, s_B2LK = self.project(hidden_BLD, self.query, self.key_value)
        own = [0, 0, 0, 0, 1, 1, 1]
        return Projected(q_BHLK, (s_B2LK * self.key_scale.view(2, 1, -1))[:, own], s_B2LK[:, own])

    def parameter_formula(self) -> int:
        return (self.geometry.width + 1) * (self.context_width + 2 * self.head_size) + 2 * self.head_size


@register_variant("near_double")
class NearDouble(LooksNear, _Double):
    """Two heads that are keys and values, for four and three query heads."""


class _SingleGate(_Single):
    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.gate = nn.Linear(geometry.width, self.num_key_value_heads)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        projected = super().forward(hidden_BLD)
        gates_BGL = 2 * torch.sigmoid(self.gate(hidden_BLD)).transpose(1, 2)
        projected.v_BGLK = projected.v_BGLK * gates_BGL[..., None]
        return projected

    def parameter_formula(self) -> int:
        return super().parameter_formula() + self.geometry.width + 1


@register_variant("near_single_gate")
class NearSingleGate(LooksNear, _SingleGate):
    """`near_single` where each token says how much of its value is seen."""


@register_variant("near_single_norm")
class NearSingleNorm(LooksNear, _Single):
    """`near_single` with queries and keys of one length and a temperature a head; the biases are added after that."""

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.temperature = nn.Parameter(torch.empty(self.num_heads))

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        initialization.copy_(self.temperature, torch.full_like(self.temperature, 0.5))

    def forward(self, hidden_BLD: Tensor) -> Projected:
        p = _Single.forward(self, hidden_BLD)
        assert p.key_scale_HK is not None
        q_BHLK = _of_one_length(p.q_BHLK) * self.temperature[:, None, None]
        k_B1LK = _of_one_length(p.k_BGLK * p.key_scale_HK[:, None])
        return Projected(_moved(q_BHLK, None, self.query_bias), _moved(k_B1LK, None, self.key_bias), p.v_BGLK)

    def parameter_formula(self) -> int:
        return super().parameter_formula() + self.num_heads


def _of_one_length(states: Tensor) -> Tensor:
    return states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + 1e-6)
