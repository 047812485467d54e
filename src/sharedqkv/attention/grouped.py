"""Standard queries, fewer key and value heads: what a user would pick instead (multi-query by default)."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from sharedqkv.attention.base import Geometry, Projected, Variant
from sharedqkv.attention.options import require_bool, require_positive_int
from sharedqkv.attention.registry import register_variant


@dataclass(frozen=True)
class GroupedOptions:
    num_key_value_heads: int = 1
    """Key/value heads, each serving an equal group of query heads; 1 is multi-query attention."""
    tie_key_value: bool = False
    """Whether keys and values are one tensor."""
    num_query_heads: int | None = None
    """Query heads of the usual size, by default num_attention_heads. With one fewer it has the weights of `shared`."""

    def __post_init__(self) -> None:
        if self.num_query_heads is not None:
            require_positive_int("num_query_heads", self.num_query_heads)
        require_positive_int("num_key_value_heads", self.num_key_value_heads)
        require_bool("tie_key_value", self.tie_key_value)


@register_variant("grouped")
class Grouped(Variant):
    Options = GroupedOptions

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        if options.num_query_heads is not None:
            self.num_heads = options.num_query_heads
        self.num_key_value_heads = options.num_key_value_heads
        if self.num_heads % self.num_key_value_heads:
            heads = "num_attention_heads" if options.num_query_heads is None else "num_query_heads"
            raise ValueError(
                f"attention option 'num_key_value_heads' must divide {heads} {self.num_heads}, "
                f"and {self.num_key_value_heads} does not"
            )
        self.key_value_width = self.num_key_value_heads * self.head_size
        self.query = nn.Linear(geometry.width, self.context_width)
        if options.tie_key_value:
            self.key_value = nn.Linear(geometry.width, self.key_value_width)
        else:
            self.key = nn.Linear(geometry.width, self.key_value_width)
            self.value = nn.Linear(geometry.width, self.key_value_width)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        if self.options.tie_key_value:
            q_BHLK, s_BGLK = self.project(hidden_BLD, self.query, self.key_value)
            return Projected(q_BHLK, s_BGLK, s_BGLK)
        return Projected(*self.project(hidden_BLD, self.query, self.key, self.value))

    def _key_value_products(self) -> int:
        return 1 if self.options.tie_key_value else 2

    def parameter_formula(self) -> int:
        return (self.geometry.width + 1) * (self.context_width + self._key_value_products() * self.key_value_width)

    def projection_flops(self) -> int:
        return 2 * self.geometry.width * (self.context_width + self._key_value_products() * self.key_value_width)
