"""Dataclasses as the only schema: read from YAML, overridden on the command line, checked field by field.

A field's help is the docstring below it; wrong keys, types and values are errors that name where they stand.
"""

import ast
import difflib
import inspect
import re
import textwrap
from collections.abc import Container, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

Schema = TypeVar("Schema")


def field_help(schema: type[Any]) -> dict[str, str]:
    """Field name → the docstring that follows it in the class body."""
    body = ast.parse(textwrap.dedent(inspect.getsource(schema))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            found[statement.target.id] = " ".join(str(following.value.value).split())
    return found


def build(
    schema: type[Schema], values: Mapping[str, Any], where: str, lines: Mapping[str, int] | None = None
) -> Schema:
    """An instance from plain values. `where` (and a line for each key) say in errors where the values come from."""

    def place(key: str) -> str:
        return f"{where}, line {lines[key]}" if lines and key in lines else where

    hints = get_type_hints(schema)
    known = {field.name: field for field in fields(schema)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(known)}"
            raise ValueError(f"{place(key)}: unknown key {key!r}.{hint}")
    for name, field in known.items():
        if name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{where}: {name!r} is missing ({field_help(schema).get(name, 'it has no default')})")
    converted = {}
    for key, value in values.items():
        try:
            converted[key] = convert(hints[key], value)
        except ValueError as error:
            raise ValueError(f"{place(key)}: {key} must be {error}, not {value!r}") from None
    try:
        return schema(**converted)
    except ValueError as error:
        named = first_named(str(error), lines or {})
        raise ValueError(f"{place(named) if named else where}: {error}") from None


def first_named(message: str, keys: Container[str]) -> str | None:
    """The first of the keys that the message speaks of, as `key` or as `--key`."""
    words = (word.strip("-").replace("-", "_") for word in re.findall(r"[\w-]+", message))
    return next((word for word in words if word in keys), None)


def convert(hint: Any, value: Any) -> Any:
    """The value as the type asks for it; a ValueError says what was expected."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None and NoneType in arguments:
            return None
        return _convert_to_any([argument for argument in arguments if argument is not NoneType], value)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"one of {', '.join(map(str, arguments))}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError("a list")
        inner = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        if len(inner) != len(value):
            raise ValueError(f"a list of {len(inner)}")
        return tuple(convert(kind, item) for kind, item in zip(inner, value, strict=True))
    if hint is float and isinstance(value, str):  # YAML reads 1e-3 as a string: it wants 1.0e-3
        try:
            return float(value)
        except ValueError:
            pass
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    kind = origin or hint
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", dict: "a mapping"}
        raise ValueError(names.get(kind, str(kind)))
    return value


def _convert_to_any(kinds: Sequence[Any], value: Any) -> Any:
    expected = []
    for kind in kinds:
        try:
            return convert(kind, value)
        except ValueError as error:
            expected.append(str(error))
    raise ValueError(" or ".join(expected))


def load_yaml(schema: type[Schema], path: Path, overrides: Mapping[str, Any] | None = None) -> Schema:
    """An instance from a YAML file, with some values replaced."""
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(node, yaml.MappingNode) or not isinstance(values, dict):
        raise ValueError(f"{path}: expected `key: value` lines")
    lines = {key.value: key.start_mark.line + 1 for key, _ in node.value if isinstance(key, yaml.ScalarNode)}
    overrides = dict(overrides or {})
    lines = {key: line for key, line in lines.items() if key not in overrides}
    return build(schema, {**values, **overrides}, str(path), lines)


def parse_overrides(schema: type[Any], arguments: Sequence[str]) -> dict[str, Any]:
    """`--key value`, `--key=value` and `--flag` (true) into values, read as YAML where the field is not text."""
    hints = get_type_hints(schema)
    overrides: dict[str, Any] = {}
    remaining = list(arguments)
    while remaining:
        argument = remaining.pop(0)
        if not argument.startswith("--"):
            raise ValueError(f"{argument!r} is not of the form --field value")
        key, equals, text = argument[2:].partition("=")
        if not equals:
            text = remaining.pop(0) if remaining and not remaining[0].startswith("--") else "true"
        name = key.replace("-", "_")
        try:
            overrides[name] = text if hints.get(name) is str else yaml.safe_load(text)
        except yaml.YAMLError:
            raise ValueError(f"--{key} {text!r} is not valid YAML") from None
    return overrides


def describe(schema: type[Any]) -> str:
    """The fields with their defaults and help, for `--help`."""
    lines = []
    for field in fields(schema):
        default = "required" if field.default is MISSING and field.default_factory is MISSING else _default(field)
        lines.append(f"  --{field.name} ({default})")
        lines += textwrap.wrap(
            field_help(schema).get(field.name, ""), 100, initial_indent="      ", subsequent_indent="      "
        )
    return "\n".join(lines)


def _default(field: Any) -> str:
    value = field.default if field.default is not MISSING else field.default_factory()
    return "not set" if value is None else yaml.safe_dump(value, default_flow_style=True).split("\n")[0]
