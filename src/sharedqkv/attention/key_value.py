"""Values are the keys, queries apart: the mild tie."""

from typing import Any

from torch import Tensor, nn

from sharedqkv.attention.base import Geometry, Projected, Variant
from sharedqkv.attention.registry import register_variant


@register_variant("key_value")
class KeyValue(Variant):
    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.query = nn.Linear(geometry.width, geometry.width)
        self.key_value = nn.Linear(geometry.width, geometry.width)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        q_BHLK, s_BHLK = self.project(hidden_BLD, self.query, self.key_value)
        return Projected(q_BHLK, s_BHLK, s_BHLK)

    def parameter_formula(self) -> int:
        return 2 * self.geometry.width**2 + 2 * self.geometry.width

    def projection_flops(self) -> int:
        return 2 * 2 * self.geometry.width**2
