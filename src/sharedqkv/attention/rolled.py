"""As `shared`, but head h takes its queries from slice h + 1 and its values from slice h + 2 of S.

No parameter more, and the logits are no longer symmetric, because no head compares a slice with itself.
"""

from torch import Tensor

from sharedqkv.attention.base import Projected
from sharedqkv.attention.registry import register_variant
from sharedqkv.attention.shared import Shared


@register_variant("rolled")
class Rolled(Shared):
    def forward(self, hidden_BLD: Tensor) -> Projected:
        projected = super().forward(hidden_BLD)
        s_BHLK = projected.k_BGLK
        projected.q_BHLK = s_BHLK.roll(-1, dims=1)
        projected.v_BGLK = s_BHLK.roll(-2, dims=1)
        return projected
