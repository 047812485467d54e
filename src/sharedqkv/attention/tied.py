"""One projection for all three roles: what is left of `shared` without its diagonals."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from sharedqkv.attention.base import Geometry, Projected, Variant
from sharedqkv.attention.options import require_bool
from sharedqkv.attention.registry import register_variant


@dataclass(frozen=True)
class TiedOptions:
    bias: bool = False
    """Whether the shared projection has a bias; the paper's count, d² + 3d, has none."""

    def __post_init__(self) -> None:
        require_bool("bias", self.bias)


@register_variant("tied")
class Tied(Variant):
    Options = TiedOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.shared = nn.Linear(geometry.width, geometry.width, bias=options.bias)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        s_BHLK = self.split_heads(self.shared(hidden_BLD))
        return Projected(s_BHLK, s_BHLK, s_BHLK)

    def parameter_formula(self) -> int:
        return self.geometry.width**2 + (self.geometry.width if self.options.bias else 0)

    def projection_flops(self) -> int:
        return 2 * self.geometry.width**2
