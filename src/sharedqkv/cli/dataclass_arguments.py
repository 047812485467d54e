"""A dataclass as command-line arguments: the field is the option, the docstring below it is its help."""

import argparse
from dataclasses import MISSING, Field, fields
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from sharedqkv.schema import field_help

Arguments = TypeVar("Arguments")


def add_dataclass_arguments(parser: argparse.ArgumentParser, kind: type) -> None:
    """One option a field: a `bool` is a flag, a tuple may be given several times, a Literal has choices."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        options: dict[str, Any] = {"help": _help(kind, field)}
        if hint is bool:
            options["action"] = "store_true"
        elif get_origin(hint) is tuple:
            options |= {"action": "append", "type": get_args(hint)[0]}
        elif get_origin(hint) is Literal:
            options["choices"] = get_args(hint)
        else:
            options["type"] = next(part for part in (*get_args(hint), hint) if part is not NoneType)
        if field.default is MISSING and field.default_factory is MISSING:
            options["required"] = True
        # What is not given is not set, so that the dataclass alone knows the defaults.
        parser.add_argument(f"--{field.name.replace('_', '-')}", default=argparse.SUPPRESS, **options)


def dataclass_from(options: argparse.Namespace, kind: type[Arguments]) -> Arguments:
    given = {field.name: getattr(options, field.name) for field in fields(kind) if hasattr(options, field.name)}  # type: ignore[arg-type]
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


def _help(kind: type, field: Field[Any]) -> str:
    # argparse reads % in a help text as a format.
    text = field_help(kind).get(field.name, "").replace("%", "%%")
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    says_nothing = any(default is value for value in (MISSING, None, False, ()))
    return text if says_nothing else f"{text} (default: {default})"
