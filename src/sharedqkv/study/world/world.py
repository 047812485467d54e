"""The world as an object: the same seed gives the same text on every machine."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from sharedqkv.study.world.dice import Dice
from sharedqkv.study.world.stories import story
from sharedqkv.study.world.tasks import Row, task_rows


@dataclass(frozen=True)
class World:
    seed: int = 0

    def documents(self, count: int, start: int = 0) -> Iterator[str]:
        """Stories number `start` to `start + count - 1`."""
        return (story(Dice(self.seed, "story", number)) for number in range(start, start + count))

    def task(self, name: str, split: str, count: int) -> list[Row]:
        """The first rows of a split, in the columns of GLUE or SQuAD."""
        return list(islice(task_rows(self.seed, name, split), count))
