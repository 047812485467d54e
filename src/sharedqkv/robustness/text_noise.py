"""Noise on text: seeded, the same on every platform, and made to keep the label.

A noise names the places it may edit and what it writes there; `corrupt` edits them in random order until the
severity's share of the characters is changed. Left alone are

- negations, words with digits and the characters beside both (casing may change them); word noises also leave the
  word to the right of these in its place, as what is negated or counted;
- places where an edit would make a negation ("on" → "no") or a number, or leave a text or span blank;
- places across the border of a span.

Letters of every script count, together with their combining marks; slips on a keyboard and misreadings by OCR are
known for plain Latin letters only. Emoji are never edited. A word is what stands between white space, without the
punctuation around it. Pythons differ in characters newer than Unicode 14: there alone results may differ, too.
"""

import hashlib
import random
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sharedqkv.robustness.characters import APOSTROPHES, CONFUSIONS, NEIGHBOURS, PUNCTUATION
from sharedqkv.robustness.edits import PROTECTED, Fences, Span, apply, pick

RATES = (0.02, 0.05, 0.10, 0.20, 0.30)
"""Severities 1 to 5: the share of characters that are changed, or that the changed words hold."""


@dataclass(frozen=True)
class TextNoise:
    meaning: str
    places: Callable[[str], Sequence[Span]]
    """Where the noise may edit a text. Of places that overlap at most one is edited."""
    rewrite: Callable[[str, float], str]
    """What is written there, from what stands there and a random number in [0, 1)."""
    protects_words: bool = True
    """Whether negations and words with digits are left alone."""


@dataclass(frozen=True)
class Corrupted:
    text: str
    spans: tuple[Span, ...]
    """Where the given spans lie now."""


def corrupt(text: str, noise: str, severity: int, seed: int, key: str = "", spans: Sequence[Span] = ()) -> Corrupted:
    """The text with a noise of severity 0 (none) to 5, and where its spans have moved.

    `key` names the text, as an example's id and column do. Random numbers depend on noise, seed and key alone, so
    that a higher severity adds to the edits of a lower one.
    """
    if noise not in TEXT_NOISES:
        raise ValueError(f"unknown text noise {noise!r}; known are {', '.join(TEXT_NOISES)}")
    if severity not in range(len(RATES) + 1):
        raise ValueError(f"unknown severity {severity!r}; known are 0 (no noise) to {len(RATES)}")
    for start, end in spans:
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"span ({start}, {end}) does not lie in its text of {len(text)} characters")
    if severity == 0:
        return Corrupted(text, tuple(spans))
    how = TEXT_NOISES[noise]
    fences = Fences(text, spans, how.protects_words)
    budget = RATES[severity - 1] * len(text)
    edits = pick(text, how.places(text), how.rewrite, budget, fences, _stream(noise, seed, key))
    edited = apply(text, edits, spans, how.protects_words)
    return Corrupted(edited.text, tuple(map(edited.move, spans)))


def _stream(noise: str, seed: int, key: str) -> random.Random:
    """Only `random()` is to be called: Python promises that its numbers stay the same, and of nothing else here."""
    digest = hashlib.sha256(f"{noise}\n{seed}\n{key}".encode("utf-8", "surrogatepass")).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


_MARKS = "".join(chr(code) for code in range(0x300, 0xFFFF) if unicodedata.category(chr(code))[0] == "M")
_JOINERS, _VARIANTS = "\u200c\u200d", "\U000e0100-\U000e01ef"
_ATTACHED = f"[{_MARKS}{_JOINERS}{_VARIANTS}]"
_LETTER = r"[^\W\d_]"
_CHARACTER = rf"(?<!\u200d){_LETTER}(?:\u200d{_LETTER}|{_ATTACHED})*"
"""A letter with all that is attached to it, other letters too where a joiner ties them."""
_WORD = re.compile(rf"[{APOSTROPHES}]?\w(?:\S*\w)?{_ATTACHED}*")


def _found(pattern: str) -> Callable[[str], list[Span]]:
    """Places of the pattern's group, or of all of it where it has none."""
    compiled = re.compile(pattern)
    return lambda text: [match.span(compiled.groups) for match in compiled.finditer(text)]


def _words(text: str) -> Iterator[tuple[int, int, bool]]:
    """Start and end of each word, and whether it is free: not protected, nor to the right of a word that is."""
    stays = False
    for match in _WORD.finditer(text):
        protected = PROTECTED.search(match[0]) is not None
        yield *match.span(), not protected and not stays
        stays = protected


def _free_words(text: str) -> list[Span]:
    return [(start, end) for start, end, free in _words(text) if free]


def _free_words_with_space(text: str) -> list[Span]:
    """Words with the white space before them; the first one with what is after it."""
    places, done = [], 0
    for start, end, free in _words(text):
        between = text[done:start]
        done = end
        if free and start:
            places.append((start - len(between) + len(between.rstrip()), end))
        elif free:
            after = text[end:]
            places.append((0, end + len(after) - len(after.lstrip())))
    return places


def _free_neighbours(text: str) -> list[Span]:
    return [
        (left_start, right_end)
        for (left_start, left_end, left_free), (right_start, right_end, right_free) in pairwise(_words(text))
        if left_free and right_free and text[left_end:right_start].isspace()
    ]


def _one_of(options: Sequence[str], draw: float) -> str:
    return options[int(draw * len(options))]


def _slip(letter: str, draw: float) -> str:
    neighbour = _one_of(NEIGHBOURS[letter.lower()], draw)
    return neighbour if letter.islower() else neighbour.upper()


def _swap_characters(pair: str, _: float) -> str:
    first, second = re.findall(_CHARACTER, pair)
    return second + first


def _swap_words(pair: str, _: float) -> str:
    first, space, second = re.split(r"(\s+)", pair)
    return second + space + first


def _flip_case(letter: str, _: float) -> str:
    flipped = letter.swapcase()
    return flipped if len(flipped) == 1 else letter  # "ß" would become "SS"


TEXT_NOISES = {
    "keyboard": TextNoise("a key beside the right one", _found(f"[A-Za-z](?!{_ATTACHED})"), _slip),
    "swap": TextNoise("two neighbouring letters swapped", _found(f"(?=({_CHARACTER}{_CHARACTER}))"), _swap_characters),
    "drop": TextNoise("letters lost", _found(_CHARACTER), lambda letter, _: ""),
    "insert": TextNoise(
        "letters too many",
        _found(f"(?<={_LETTER})(?!{_ATTACHED})"),
        lambda _, draw: _one_of("abcdefghijklmnopqrstuvwxyz", draw),
    ),
    "repeat": TextNoise("letters doubled", _found(_CHARACTER), lambda letter, _: letter * 2),
    "ocr": TextNoise(
        "letters read as others of like shape",
        _found(f"(?=({'|'.join(sorted(CONFUSIONS, key=len, reverse=True))})(?!{_ATTACHED}))"),
        lambda letters, draw: _one_of(CONFUSIONS[letters], draw),
    ),
    "word_drop": TextNoise("words lost", _free_words_with_space, lambda word, _: ""),
    "word_swap": TextNoise("two neighbouring words swapped", _free_neighbours, _swap_words),
    "word_repeat": TextNoise("words doubled", _free_words, lambda word, _: f"{word} {word}"),
    "casing": TextNoise(
        "small letters for capitals and the reverse", _found(_LETTER), _flip_case, protects_words=False
    ),
    "punctuation": TextNoise(
        "punctuation marks lost", _found(f"[{re.escape(PUNCTUATION)}](?!{_ATTACHED})"), lambda mark, _: ""
    ),
    "whitespace": TextNoise(
        "words run together, or fall apart",
        _found(rf"\s+(?!{_ATTACHED})|(?<={_LETTER})(?={_LETTER})"),
        lambda space, _: "" if space else " ",
    ),
}
