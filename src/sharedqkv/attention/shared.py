"""One projection and three diagonals: the paper's shared weight self-attention (Kowsher et al. 2025).

S = X Ws; q = S ⊙ dq, k = S ⊙ dk, v = S ⊙ dv. The diagonals are handed to the backend instead of being applied
here: dv can wait for the attention output, and without rotary positions dq and dk meet as one vector on q.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization

from sharedqkv.attention.base import Geometry, Projected
from sharedqkv.attention.options import require_choice
from sharedqkv.attention.registry import register_variant
from sharedqkv.attention.tied import Tied, TiedOptions


def random_signs_like(tensor: Tensor) -> Tensor:
    return torch.randint_like(tensor, 2) * 2 - 1


@dataclass(frozen=True)
class SharedOptions(TiedOptions):
    diagonals: str = "query_key_value"
    """Which there are: all in the paper's model, `query_key` (rotary) or `query` in one that was folded."""
    init: str = "ones"
    """Of dq: `ones` as in the paper, or random `signs`, so that a token's own key no longer fits its query best."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("diagonals", self.diagonals, ("query_key_value", "query_key", "query"))
        require_choice("init", self.init, ("ones", "signs"))


@register_variant("shared")
class Shared(Tied):
    Options = SharedOptions
    query_scale: nn.Parameter
    key_scale: nn.Parameter | None
    value_scale: nn.Parameter | None

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        present = options.diagonals.split("_")
        for name in ("query", "key", "value"):
            scale = nn.Parameter(torch.empty(geometry.width)) if name in present else None
            self.register_parameter(f"{name}_scale", scale)

    def init_weights(self, std: float) -> None:
        for scale in (self.query_scale, self.key_scale, self.value_scale):
            if scale is not None:
                initialization.ones_(scale)
        if self.options.init == "signs":
            initialization.copy_(self.query_scale, random_signs_like(self.query_scale))

    def forward(self, hidden_BLD: Tensor) -> Projected:
        projected = super().forward(hidden_BLD)
        projected.query_scale_HK = self.per_head(self.query_scale)
        projected.key_scale_HK = None if self.key_scale is None else self.per_head(self.key_scale)
        projected.output_scale_HK = None if self.value_scale is None else self.per_head(self.value_scale)
        return projected

    def fold(self, output: nn.Linear, rotary: bool) -> None:
        """dv goes into the columns of Wo; without a rotation between them dk goes into dq."""
        if self.value_scale is not None:
            output.weight.mul_(self.value_scale)
            self.value_scale = None
        if self.key_scale is not None and not rotary:
            self.query_scale.mul_(self.key_scale)
            self.key_scale = None
        self.options = replace(self.options, diagonals="query" if self.key_scale is None else "query_key")

    def parameter_formula(self) -> int:
        return super().parameter_formula() + len(self.options.diagonals.split("_")) * self.geometry.width
