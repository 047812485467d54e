from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from sharedqkv import schema


@dataclass(frozen=True)
class Example:
    name: str
    """what it is
    called"""
    rate: float = 0.5
    kind: Literal["a", "b"] = "a"
    """one of two"""
    count: int | None = None
    pair: tuple[float, float] = (1.0, 2.0)
    many: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    flag: bool = False

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise ValueError("rate must not be negative")


def test_help_is_the_docstring_below_the_field():
    assert schema.field_help(Example) == {"name": "what it is called", "kind": "one of two"}
    described = schema.describe(Example)
    assert "--name (required)\n      what it is called" in described
    assert "--count (not set)" in described
    assert "--pair ([1.0, 2.0])" in described


def test_values_are_converted():
    values = {"name": "x", "rate": 1, "pair": [3, 4], "many": ["p", "q"], "count": 7, "options": {"bias": True}}
    built = schema.build(Example, values, "here")
    assert built == Example("x", 1.0, "a", 7, (3.0, 4.0), ("p", "q"), {"bias": True})
    assert isinstance(built.rate, float)


def test_yaml_numbers_in_exponent_form_are_numbers():
    assert schema.build(Example, {"name": "x", "rate": "1e-3"}, "here").rate == 1e-3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "x", "rat": 1}, "here: unknown key 'rat'. Did you mean 'rate'"),
        ({"name": "x", "zzz": 1}, "here: unknown key 'zzz'. Known: name, rate"),
        ({}, r"here: 'name' is missing \(what it is called\)"),
        ({"name": 3}, "here: name must be text, not 3"),
        ({"name": "x", "rate": "fast"}, "here: rate must be a number, not 'fast'"),
        ({"name": "x", "rate": True}, "here: rate must be a number, not True"),
        ({"name": "x", "count": 1.5}, "here: count must be a whole number, not 1.5"),
        ({"name": "x", "kind": "c"}, "here: kind must be one of a, b, not 'c'"),
        ({"name": "x", "pair": [1]}, r"here: pair must be a list of 2, not \[1\]"),
        ({"name": "x", "many": "p"}, "here: many must be a list, not 'p'"),
        ({"name": "x", "options": []}, r"here: options must be a mapping, not \[\]"),
        ({"name": "x", "flag": 1}, "here: flag must be true or false, not 1"),
        ({"name": "x", "rate": -1}, "here: rate must not be negative"),
    ],
)
def test_bad_values_say_where_and_what(values, message):
    with pytest.raises(ValueError, match=message):
        schema.build(Example, values, "here")


def test_yaml_errors_name_the_line(tmp_path):
    path = tmp_path / "example.yaml"
    path.write_text("# a comment\nname: x\nrat: 3\n")
    with pytest.raises(ValueError, match=r"example.yaml, line 3: unknown key 'rat'"):
        schema.load_yaml(Example, path)
    path.write_text("name: x\nrate: fast\n")
    with pytest.raises(ValueError, match=r"example.yaml, line 2: rate must be a number"):
        schema.load_yaml(Example, path)
    assert schema.load_yaml(Example, path, {"rate": 0.25}).rate == 0.25
    path.write_text("name: x\n\nrate: -1\n")
    with pytest.raises(ValueError, match=r"example.yaml, line 3: rate must not be negative"):
        schema.load_yaml(Example, path)
    with pytest.raises(ValueError, match=r"example.yaml: rate must not be negative"):
        schema.load_yaml(Example, path, {"rate": -2})  # from the command line
    for text in ("- a list", "", "{"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"example\.yaml"):
            schema.load_yaml(Example, path)


def test_overrides():
    arguments = ["--rate", "1e-3", "--flag", "--options", "{bias: true}", "--name=2024", "--many-things", "[a=b]"]
    arguments += ["--count", "null"]
    assert schema.parse_overrides(Example, arguments) == {
        "rate": "1e-3",
        "flag": True,
        "options": {"bias": True},
        "name": "2024",
        "many_things": ["a=b"],
        "count": None,
    }
    with pytest.raises(ValueError, match=r"--options '{bias: 1' is not valid YAML"):
        schema.parse_overrides(Example, ["--options", "{bias: 1"])
    with pytest.raises(ValueError, match="'stray' is not of the form --field value"):
        schema.parse_overrides(Example, ["stray"])
