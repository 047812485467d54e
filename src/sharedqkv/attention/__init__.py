"""Ways of making queries, keys and values: one small file a variant, one registry."""

# Not sorted: the order of registration is the order of every table.
from sharedqkv.attention.standard import Standard
from sharedqkv.attention.symmetric import Symmetric
from sharedqkv.attention.pairwise import Pairwise
from sharedqkv.attention.shared import Shared
from sharedqkv.attention.tied import Tied
from sharedqkv.attention.key_value import KeyValue
from sharedqkv.attention.low_rank import LowRank
from sharedqkv.attention.narrow import Narrow
from sharedqkv.attention.grouped import Grouped
from sharedqkv.attention.rolled import Rolled
from sharedqkv.attention.overlapping import Overlapping
from sharedqkv.attention.base import Geometry, Projected, Variant
from sharedqkv.attention.registry import build_variant, get_variant, register_variant, variant_names

__all__ = [
    "Geometry",
    "Grouped",
    "KeyValue",
    "LowRank",
    "Narrow",
    "Overlapping",
    "Pairwise",
    "Projected",
    "Rolled",
    "Shared",
    "Standard",
    "Symmetric",
    "Tied",
    "Variant",
    "build_variant",
    "get_variant",
    "register_variant",
    "variant_names",
]
