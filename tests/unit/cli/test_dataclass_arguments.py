import argparse
from dataclasses import dataclass, field
from typing import Literal

import pytest

from sharedqkv.cli.dataclass_arguments import add_dataclass_arguments, dataclass_from


@dataclass(frozen=True)
class Meal:
    name: str
    """what it is called"""
    guests: int = 0
    """how many, 50 % more is fine"""
    price: float | None = None
    """in euros"""
    courses: tuple[str, ...] = ()
    """one after the other"""
    kind: Literal["hot", "cold"] = "hot"
    vegan: bool = False
    """without animals"""
    tips: int = field(default_factory=lambda: 3)


@pytest.fixture
def parser():
    parser = argparse.ArgumentParser()
    add_dataclass_arguments(parser, Meal)
    return parser


def parse(parser, *arguments):
    return dataclass_from(parser.parse_args(arguments), Meal)


def test_what_is_given_and_what_is_not(parser):
    assert parse(parser, "--name", "tea") == Meal("tea")
    numbers = ["--guests", "2", "--price", "1.5", "--tips", "0"]
    given = parse(parser, "--name", "tea", *numbers, "--courses", "a", "--courses", "b", "--kind", "cold", "--vegan")
    assert given == Meal("tea", 2, 1.5, ("a", "b"), "cold", True, 0)


@pytest.mark.parametrize("arguments", [[], ["--name", "x", "--kind", "warm"], ["--name", "x", "--guests", "many"]])
def test_what_is_wrong(parser, arguments):
    with pytest.raises(SystemExit):
        parse(parser, *arguments)


def test_help(parser):
    text = " ".join(parser.format_help().split())
    assert "--name NAME what it is called" in text
    assert "how many, 50 % more is fine (default: 0)" in text
    assert "without animals" in text
    assert "(default: False)" not in text
    assert "(default: 3)" in text
