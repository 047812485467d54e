"""One projection and three diagonals: the paper's shared weight self-attention (Kowsher et al. 2025).

S = X Ws; q = S ⊙ dq, k = S ⊙ dk, v = S ⊙ dv. The diagonals are handed to the backend instead of being applied
here: dv can wait for the attention output, and without rotary positions dq and dk meet as one vector on q.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization

from sharedqkv.attention.base import Geometry, Projected
from sharedqkv.attention.registry import register_variant
from sharedqkv.attention.tied import Tied


@register_variant("shared")
class Shared(Tied):
    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.query_scale = nn.Parameter(torch.empty(geometry.width))
        self.key_scale = nn.Parameter(torch.empty(geometry.width))
        self.value_scale = nn.Parameter(torch.empty(geometry.width))

    def init_weights(self, std: float) -> None:
        for scale in (self.query_scale, self.key_scale, self.value_scale):
            initialization.ones_(scale)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        projected = super().forward(hidden_BLD)
        projected.query_scale_HK = self.per_head(self.query_scale)
        projected.key_scale_HK = self.per_head(self.key_scale)
        projected.output_scale_HK = self.per_head(self.value_scale)
        return projected

    def parameter_formula(self) -> int:
        return super().parameter_formula() + 3 * self.geometry.width
