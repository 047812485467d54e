"""Chance that is the same on every platform and Python version."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Throws that hang on their name alone. Only `random()` is used: Python promises its sequence, not the others'."""

    def __init__(self, *name: object):
        self._random = random.Random("/".join(map(str, name))).random

    def chance(self, share: float = 0.5) -> bool:
        return self._random() < share

    def choice(self, options: Sequence[T]) -> T:
        return options[int(self._random() * len(options))]

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        """`count` different ones, in any order."""
        left = list(options)
        return [left.pop(int(self._random() * len(left))) for _ in range(count)]
