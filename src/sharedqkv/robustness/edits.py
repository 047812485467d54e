"""Edits of a text: chosen at random, kept away from words that carry the label, applied with spans moving along."""

import random
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from sharedqkv.robustness.characters import APOSTROPHES, NEGATIONS

Span = tuple[int, int]
"""Start and end, as in a slice."""

_NEGATION = rf"{'|'.join(NEGATIONS)}|\w*n[{APOSTROPHES}]t"
PROTECTED = re.compile(rf"(?<!\w)(?:{_NEGATION}|\w*\d\w*)(?!\w)", re.IGNORECASE)
"""Negations and words with digits."""
_NEVER_MADE = re.compile(rf"(?<!\w)(?:{_NEGATION}|\d+)(?!\w)", re.IGNORECASE)
"""OCR may well read "so" as "s0", but must not invent a number."""


class Edit(NamedTuple):
    start: int
    end: int
    new: str


class Fences:
    """Where a text may not be edited: at protected words or the characters beside them, and across borders of spans."""

    def __init__(self, text: str, spans: Sequence[Span], protect_words: bool) -> None:
        words = [match.span() for match in PROTECTED.finditer(text)] if protect_words else []
        self._word_starts = [start for start, _ in words]
        self._word_ends = [end for _, end in words]
        self._borders = sorted(border for span in spans for border in span)

    def stop(self, start: int, end: int) -> bool:
        word = bisect_left(self._word_ends, start)
        if word < len(self._word_starts) and self._word_starts[word] <= end:
            return True
        border = bisect_right(self._borders, start)
        return border < len(self._borders) and self._borders[border] < end


def pick(
    text: str,
    places: Sequence[Span],
    rewrite: Callable[[str, float], str],
    budget: float,
    fences: Fences,
    rng: random.Random,
) -> list[Edit]:
    """Edits of `places` in random order until `budget` characters are changed. The last edit, where it is too large
    for what is left, is made with the probability that keeps the mean. A larger budget only adds edits."""
    luck = rng.random()
    priorities = [rng.random() for _ in places]
    taken = bytearray(len(text))
    edits: list[Edit] = []
    for number in sorted(range(len(places)), key=priorities.__getitem__):
        start, end = places[number]
        draw = rng.random()
        if taken.find(1, start, end) >= 0 or fences.stop(start, end):
            continue
        old = text[start:end]
        new = rewrite(old, draw)
        cost = _changed_characters(old, new)
        if cost and (cost <= budget or luck * cost < budget):
            edits.append(Edit(start, end, new))
            taken[start:end] = b"\1" * (end - start)
        budget -= cost
        if budget <= 0:
            break
    return edits


def _changed_characters(old: str, new: str) -> int:
    return len(new) - len(old) if new.startswith(old) else max(len(old), len(new))


class Edited:
    """A text after edits that do not overlap."""

    def __init__(self, source: str, edits: Iterable[Edit]) -> None:
        self.source = source
        self.edits = sorted(edits)
        self._starts = [edit.start for edit in self.edits]
        self._ends = [edit.end for edit in self.edits]
        self._shifts = [0]
        pieces, done = [], 0
        for start, end, new in self.edits:
            pieces += [source[done:start], new]
            done = end
            self._shifts.append(self._shifts[-1] + len(new) - (end - start))
        self.text = "".join([*pieces, source[done:]])

    def move(self, span: Span) -> Span:
        """Where a span of the source lies now. What was inserted at its borders is outside."""
        start = span[0] + self._shifts[bisect_right(self._ends, span[0])]
        end = span[1] + self._shifts[bisect_left(self._starts, span[1])]
        return start, max(start, end)

    def faults(self, spans: Sequence[Span], protect_words: bool) -> set[int]:
        """Numbers of the edits that together made a negation or a number, or left nothing of the text or a span."""
        emptied = self._emptied([(0, len(self.source)), *spans])
        return emptied | self._made_words() if protect_words else emptied

    def _made_words(self) -> set[int]:
        """Numbers of the edits that touch a word that is never made: `Fences` keeps edits off those there were."""
        new_starts = [start + shift for start, shift in zip(self._starts, self._shifts[:-1], strict=True)]
        new_ends = [end + shift for end, shift in zip(self._ends, self._shifts[1:], strict=True)]
        faults: set[int] = set()
        for word in _NEVER_MADE.finditer(self.text):
            faults.update(range(bisect_left(new_ends, word.start()), bisect_right(new_starts, word.end())))
        return faults

    def _emptied(self, spans: Sequence[Span]) -> set[int]:
        """Numbers of the edits within spans of which nothing, or nothing but white space, is left."""
        faults: set[int] = set()
        for start, end in spans:
            before = self.source[start:end]
            now_start, now_end = self.move((start, end))
            after = self.text[now_start:now_end]
            if (before and not after) or (before.strip() and not after.strip()):
                faults.update(range(bisect_left(self._starts, start), bisect_right(self._ends, end)))
        return faults


def apply(source: str, edits: Iterable[Edit], spans: Sequence[Span], protect_words: bool) -> Edited:
    """The text after its edits, less those that would harm it."""
    edited = Edited(source, edits)
    while faults := edited.faults(spans, protect_words):
        edited = Edited(source, [edit for number, edit in enumerate(edited.edits) if number not in faults])
    return edited
