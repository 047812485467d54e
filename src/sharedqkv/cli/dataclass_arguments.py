"""A dataclass as command-line arguments: the field is the option, the docstring below it is its help."""

import argparse
import dataclasses
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from sharedqkv.schema import field_help

Arguments = TypeVar("Arguments")


def add_dataclass_arguments(parser: argparse.ArgumentParser, kind: type) -> None:
    """One option a field: `bool` is a flag, a tuple may be given several times, a Literal lists its choices."""
    hints, helps = get_type_hints(kind), field_help(kind)
    for field in dataclasses.fields(kind):
        flag = f"--{field.name.replace('_', '-')}"
        default, required = _default(field)
        # argparse reads % in a help text as a format.
        help_text = helps.get(field.name, "").replace("%", "%%")
        if not required and default not in (None, False, ()):
            help_text += f" (default: {default})"
        hint = hints[field.name]
        if hint is bool:
            parser.add_argument(flag, action="store_true", default=default, help=help_text)
        elif get_origin(hint) is tuple:
            parser.add_argument(flag, action="append", type=get_args(hint)[0], required=required, help=help_text)
        elif get_origin(hint) is Literal:
            parser.add_argument(flag, choices=get_args(hint), default=default, required=required, help=help_text)
        else:
            plain = next(part for part in (*get_args(hint), hint) if part is not NoneType)
            parser.add_argument(flag, type=plain, default=default, required=required, help=help_text)


def dataclass_from(options: argparse.Namespace, kind: type[Arguments]) -> Arguments:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        value = getattr(options, field.name)
        if isinstance(value, list):
            values[field.name] = tuple(value)
        elif value is not None:
            values[field.name] = value
    return kind(**values)


def _default(field: dataclasses.Field[Any]) -> tuple[Any, bool]:
    """The default value, and whether the field must be given."""
    if field.default is not dataclasses.MISSING:
        return field.default or None if field.default == () else field.default, False
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory(), False
    return None, True
