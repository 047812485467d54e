"""Checks shared by the variants' option dataclasses."""

from typing import Any


def require_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"attention option {name!r} must be true or false, not {value!r}")


def require_positive_int(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"attention option {name!r} must be a positive integer, not {value!r}")


def require_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"attention option {name!r} must be one of {', '.join(choices)}, not {value!r}")
