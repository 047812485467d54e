"""Separate weights for queries, keys and values: BERT as published, with its parameter names."""

from typing import Any

from torch import Tensor, nn

from sharedqkv.attention.base import Geometry, Projected, Variant
from sharedqkv.attention.registry import register_variant


@register_variant("standard")
class Standard(Variant):
    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.head_size = self.choose_head_size(geometry)
        self.query = nn.Linear(geometry.width, self.context_width)
        self.key = nn.Linear(geometry.width, self.context_width)
        self.value = nn.Linear(geometry.width, self.context_width)

    @staticmethod
    def choose_head_size(geometry: Geometry) -> int:
        return geometry.head_size

    def forward(self, hidden_BLD: Tensor) -> Projected:
        return Projected(*self.project(hidden_BLD, self.query, self.key, self.value))

    def parameter_formula(self) -> int:
        return 3 * (self.geometry.width * self.context_width + self.context_width)

    def projection_flops(self) -> int:
        return 2 * 3 * self.geometry.width * self.context_width
