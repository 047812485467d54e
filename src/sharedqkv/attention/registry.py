"""The one list of variants, by name."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from sharedqkv.attention.base import Geometry, Variant
from sharedqkv.plugins import left_out, load_plugins

ENTRY_POINT_GROUP = "sharedqkv.variants"

_VARIANTS: dict[str, type[Variant]] = {}
VariantClass = TypeVar("VariantClass", bound=type[Variant])


def register_variant(name: str) -> Callable[[VariantClass], VariantClass]:
    """Class decorator: make a variant known as `attention_variant=name`.

    Packages of third parties use it too; they are found without an import by users when they declare
    an entry point in the group `sharedqkv.variants` that names the module.
    """
    if not name.isidentifier():
        raise ValueError(f"variant name {name!r} must be a Python identifier: it is used in configs and on the CLI")

    def register(variant: VariantClass) -> VariantClass:
        known = _VARIANTS.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (variant.__module__, variant.__qualname__):
            raise ValueError(f"variant {name!r} is already registered by {known.__module__}.{known.__qualname__}")
        _VARIANTS[name] = variant
        return variant

    return register


def variant_names() -> list[str]:
    """All registered names, in order of registration."""
    load_plugins(ENTRY_POINT_GROUP)
    return list(_VARIANTS)


def get_variant(name: str) -> type[Variant]:
    if name not in _VARIANTS:
        load_plugins(ENTRY_POINT_GROUP)
    if name not in _VARIANTS:
        close = difflib.get_close_matches(str(name), _VARIANTS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"unknown attention_variant {name!r}.{hint} Known: {', '.join(_VARIANTS)}. "
            f"A variant of your own must be imported, and so registered, first.{left_out(ENTRY_POINT_GROUP)}"
        )
    return _VARIANTS[name]


def build_variant(name: str, geometry: Geometry, options: Mapping[str, Any] | None = None) -> Variant:
    """Build a variant; wrong geometry or options raise a ValueError that names the value and what is allowed."""
    variant = get_variant(name)
    if geometry.num_heads < 1 or geometry.width % geometry.num_heads:
        raise ValueError(f"hidden_size {geometry.width} is not divisible by num_attention_heads {geometry.num_heads}")
    given = dict(options or {})
    allowed = [field.name for field in fields(variant.Options)]
    unknown = sorted(set(given) - set(allowed))
    if unknown:
        raise ValueError(
            f"unknown attention_options {unknown} for variant {name!r}; allowed: {allowed or 'none, it has no options'}"
        )
    return variant(geometry, variant.Options(**given))
