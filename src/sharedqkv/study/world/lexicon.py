"""The words of the world, and which of them the tasks keep for their out-of-domain rows."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Noun:
    one: str
    many: str


@dataclass(frozen=True)
class Verb:
    base: str
    third: str
    participle: str = ""
    """None where the passive is never used."""


Synonyms = tuple[Verb, Verb]


@dataclass(frozen=True)
class Matter:
    """What one does to others, kindly or not, and what they do when it was good or bad for them."""

    kind: Synonyms
    unkind: Synonyms
    joy: Verb
    grief: Verb

    def verbs(self, is_kind: bool) -> Synonyms:
        return self.kind if is_kind else self.unkind

    def reaction(self, is_good: bool) -> Verb:
        return self.joy if is_good else self.grief


@dataclass(frozen=True)
class Words:
    """Lists to draw from."""

    men: tuple[Noun, ...]
    women: tuple[Noun, ...]
    things: tuple[Noun, ...]
    """What one has an opinion of."""
    gifts: tuple[str, ...]
    places: tuple[Noun, ...]
    matters: tuple[Matter, ...]
    good: tuple[str, ...]
    """Opinions of things."""
    bad: tuple[str, ...]

    def familiar(self) -> "Words":
        """Three quarters of every list: the tasks' train and validation rows have only these."""
        return self._part_of_each(lambda words: words[: -(len(words) // 4)])

    def new(self) -> "Words":
        """The last quarter of every list: the tasks' out-of-domain rows have only these."""
        return self._part_of_each(lambda words: words[-(len(words) // 4) :])

    def _part_of_each(self, part: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> "Words":
        return Words(**{field.name: part(getattr(self, field.name)) for field in dataclasses.fields(self)})


def _nouns(text: str) -> tuple[Noun, ...]:
    return tuple(Noun(*entry.split()) for entry in text.split(","))


def _verbs(text: str) -> tuple[Verb, ...]:
    return tuple(Verb(*entry.split()) for entry in text.split(","))


def _matter(kind: str, unkind: str, reactions: str) -> Matter:
    (first, second), (third, fourth) = _verbs(kind), _verbs(unkind)
    return Matter((first, second), (third, fourth), *_verbs(reactions))


WORDS = Words(
    men=_nouns(
        "king kings, boy boys, uncle uncles, monk monks, prince princes, father fathers, brother brothers, "
        "wizard wizards, duke dukes, nephew nephews, waiter waiters, actor actors"
    ),
    women=_nouns(
        "queen queens, girl girls, aunt aunts, nun nuns, princess princesses, mother mothers, sister sisters, "
        "witch witches, duchess duchesses, niece nieces, waitress waitresses, actress actresses"
    ),
    things=_nouns(
        "film films, song songs, book books, poem poems, picture pictures, meal meals, show shows, concert concerts"
    ),
    gifts=("hat", "ring", "letter", "coin", "cake", "rose", "lamp", "key"),
    places=_nouns(
        "mill mills, garden gardens, river rivers, tower towers, bridge bridges, market markets, castle castles, "
        "church churches"
    ),
    matters=(
        _matter(
            "help helps helped, assist assists assisted",
            "hinder hinders hindered, obstruct obstructs obstructed",
            "smile smiles, frown frowns",
        ),
        _matter(
            "praise praises praised, applaud applauds applauded",
            "mock mocks mocked, ridicule ridicules ridiculed",
            "cheer cheers, blush blushes",
        ),
        _matter(
            "save saves saved, rescue rescues rescued",
            "attack attacks attacked, assault assaults assaulted",
            "relax relaxes, tremble trembles",
        ),
        _matter(
            "hug hugs hugged, embrace embraces embraced",
            "push pushes pushed, shove shoves shoved",
            "laugh laughs, cry cries",
        ),
    ),
    good=("lovely", "funny", "great", "charming", "superb", "pleasant", "brilliant", "wonderful"),
    bad=("dull", "boring", "awful", "ugly", "clumsy", "stale", "dreadful", "horrible"),
)
GIVING = _matter("give gives, hand hands", "deny denies, refuse refuses", "dance dances, sigh sighs")
LIKE, HATE = _verbs("like likes, hate hates")
PREPOSITIONS = ("near", "behind", "beside")
