"""A variant of one's own, outside the package: queries and values share one projection, keys are apart.

Importing this file registers it; from then on `attention_variant="query_value"` works everywhere.
"""

from typing import Any

from torch import Tensor, nn

from sharedqkv import Geometry, Projected, Variant, register_variant
from sharedqkv.attention.reference import Weights, register_reference


@register_variant("query_value")
class QueryValue(Variant):
    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.query_value = nn.Linear(geometry.width, geometry.width)
        self.key = nn.Linear(geometry.width, geometry.width)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        s_BHLK = self.split_heads(self.query_value(hidden_BLD))
        return Projected(s_BHLK, self.split_heads(self.key(hidden_BLD)), s_BHLK)

    def parameter_formula(self) -> int:
        return 2 * self.geometry.width**2 + 2 * self.geometry.width

    def projection_flops(self) -> int:
        return 2 * 2 * self.geometry.width**2


@register_reference("query_value")
def query_value(weights: Weights, hidden_LD: Tensor, head: int, variant: Variant) -> tuple[Tensor, Tensor, Tensor]:
    """The formula again, for one row and one head, sharing no code with the module: tests hold the two together."""
    channels = slice(head * variant.head_size, (head + 1) * variant.head_size)
    s_LD = hidden_LD @ weights["query_value.weight"].T + weights["query_value.bias"]
    k_LD = hidden_LD @ weights["key.weight"].T + weights["key.bias"]
    return s_LD[:, channels], k_LD[:, channels], s_LD[:, channels]
