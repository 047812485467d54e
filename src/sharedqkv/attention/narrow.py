"""The control that counts: standard attention with heads of half the size.

It has the parameters of `shared` and never more FLOPs, and ties nothing. A tie is worth having only if it
beats this.
"""

from sharedqkv.attention.base import Geometry
from sharedqkv.attention.registry import register_variant
from sharedqkv.attention.standard import Standard


@register_variant("narrow")
class Narrow(Standard):
    @staticmethod
    def choose_head_size(geometry: Geometry) -> int:
        if geometry.head_size % 2:
            raise ValueError(
                f"variant 'narrow' halves the head size, and {geometry.head_size} "
                f"(hidden_size {geometry.width} / num_attention_heads {geometry.num_heads}) is odd"
            )
        return geometry.head_size // 2
