"""Models in one word for command lines and tables: `shared`, `shared:bias=true`, `standard:num_hidden_layers=10`."""

from dataclasses import fields
from typing import Any

import yaml

from sharedqkv.attention import get_variant
from sharedqkv.models.configuration import SharedQKVConfig


def parse_spec(spec: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """`variant[:key=value,…]` into the variant, its options, and other fields of the configuration."""
    name, _, assignments = spec.partition(":")
    option_names = {option.name for option in fields(get_variant(name).Options)}
    config_names = {config_field.name for config_field in fields(SharedQKVConfig)}
    config_names -= {"attention_variant", "attention_options"}  # the spec itself says these
    options: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for assignment in filter(None, assignments.split(",")):
        key, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"{spec!r}: {assignment!r} is not of the form key=value")
        if key in option_names:
            options[key] = yaml.safe_load(text)
        elif key in config_names:
            values[key] = yaml.safe_load(text)
        else:
            raise ValueError(
                f"{spec!r}: {key!r} is neither an option of {name!r} (it has {sorted(option_names) or 'none'}) nor a "
                "field of the configuration, like num_hidden_layers"
            )
    return name, options, values


def config_from_spec(spec: str, size: str, **overrides: Any) -> SharedQKVConfig:
    name, options, values = parse_spec(spec)
    values = {**overrides, **values, "attention_variant": name, "attention_options": options}
    try:
        return SharedQKVConfig.from_size(size, **values)
    except ValueError as error:
        if ":" not in spec:
            raise  # a name alone has nothing wrong in it: it is the size or another field
        raise ValueError(f"{spec!r}: {error}") from error
