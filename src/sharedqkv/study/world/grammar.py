"""Phrases and clauses as lower-case words with blanks between; `sentence` makes English of them."""

from dataclasses import dataclass, replace
from typing import Literal

from sharedqkv.study.world.dice import Dice
from sharedqkv.study.world.lexicon import GIVING, PREPOSITIONS, Matter, Verb, Words

Kind = Literal["man", "woman", "many"]
PRONOUNS: dict[Kind, tuple[str, str, str]] = {
    "man": ("he", "him", "himself"),
    "woman": ("she", "her", "herself"),
    "many": ("they", "them", "themselves"),
}
TURNED = 0.25
"""How often an event is told the rarer way. Were both ways equally frequent, no model would find roles quickly."""
GIFTS = 0.15
"""How often an event is about a gift."""


@dataclass(frozen=True)
class Person:
    """One person or several, as they are called in a clause."""

    kind: Kind
    """Decides about pronouns and the form of the verb."""
    subject: str
    object: str

    @property
    def plural(self) -> bool:
        return self.kind == "many"

    def pronoun(self) -> "Person":
        subject, object_, _ = PRONOUNS[self.kind]
        return Person(self.kind, subject, object_)

    def at(self, place: str) -> "Person":
        return replace(self, subject=f"{self.subject} {place}", object=f"{self.object} {place}")


@dataclass(frozen=True)
class Event:
    """Who does what to whom."""

    agent: Person
    patient: Person
    matter: Matter
    is_kind: bool
    negated: bool = False
    gift: str = ""
    synonym: int = 0
    """Which of the two verbs is used."""

    @property
    def is_good(self) -> bool:
        """For the patient: denied kindness is bad, denied unkindness good."""
        return self.is_kind != self.negated

    @property
    def verb(self) -> Verb:
        return self.matter.verbs(self.is_kind)[self.synonym]

    def clause(self, turned: bool = False) -> str:
        """Turned, it is passive, or the gift comes first; it means the same."""
        if turned and not self.gift:
            negation = " not" if self.negated else ""
            be = to_be(self.patient.plural)
            return f"{self.patient.subject} {be}{negation} {self.verb.participle} by {self.agent.object}"
        start = f"{self.agent.subject} {finite(self.verb, self.agent.plural, self.negated)}"
        if turned:
            return f"{start} the {self.gift} to {self.patient.object}"
        return f"{start} {self.patient.object}" + (f" the {self.gift}" if self.gift else "")

    def reworded(self) -> "Event":
        return replace(self, synonym=1 - self.synonym)

    def swapped(self) -> "Event":
        return replace(self, agent=self.patient, patient=self.agent)

    def with_pronouns(self) -> "Event":
        return replace(self, agent=self.agent.pronoun(), patient=self.patient.pronoun())


@dataclass(frozen=True)
class Speaker:
    """Draws people, events and opinions."""

    dice: Dice
    words: Words
    negation: float
    """How often something is said by denying its opposite."""
    depths: tuple[int, ...] = (0,)
    """How deep phrases and clauses nest in what people are called, or how many opinions stand for one."""

    def depth(self) -> int:
        return self.dice.choice(self.depths)

    def turned(self) -> bool:
        return self.dice.chance(TURNED)

    def kind(self) -> Kind:
        return self.dice.choice(tuple(PRONOUNS))

    def couple(self) -> tuple[Person, Person]:
        """Two whom pronouns tell apart."""
        first, second = self.dice.sample(tuple(PRONOUNS), 2)
        return self.person(first), self.person(second)

    def person(self, kind: Kind) -> Person:
        name = self._name(kind, self.depth())
        return Person(kind, name, name)

    def _name(self, kind: Kind, depth: int) -> str:
        words = self.words
        noun = self.dice.choice({"man": words.men, "woman": words.women, "many": words.men + words.women}[kind])
        name = f"the {noun.many if kind == 'many' else noun.one}"
        if not depth:
            return name
        return f"{name} {self.place(depth) if self.dice.chance() else self._relative_clause(kind, depth)}"

    def place(self, depth: int) -> str:
        noun = self.dice.choice(self.words.places)
        here = f"{self.dice.choice(PREPOSITIONS)} the {noun.many if self.dice.chance() else noun.one}"
        return here if depth == 1 else f"{here} {self.place(depth - 1)}"

    def _relative_clause(self, kind: Kind, depth: int) -> str:
        verb = self.dice.choice(self.dice.choice(self.words.matters).verbs(self.dice.chance()))
        other_kind = self.kind()
        other = self._name(other_kind, depth - 1)
        if self.dice.chance():
            return f"who {finite(verb, kind == 'many')} {other}"
        return f"who {other} {finite(verb, other_kind == 'many')}"

    def event(self, agent: Person, patient: Person, is_good: bool, gifts: float = GIFTS) -> Event:
        """Good or bad for the patient."""
        negated, synonym = self.dice.chance(self.negation), self.dice.choice((0, 1))
        if self.dice.chance(gifts):
            matter, gift = GIVING, self.dice.choice(self.words.gifts)
        else:
            matter, gift = self.dice.choice(self.words.matters), ""
        return Event(agent, patient, matter, is_good != negated, negated, gift, synonym)

    def thing(self) -> tuple[str, bool]:
        """What it is called, and whether it is several."""
        noun, plural = self.dice.choice(self.words.things), self.dice.chance()
        return f"the {noun.many if plural else noun.one}", plural

    def verdict(self, is_good: bool) -> str:
        """Of two opinions that differ, the one after `but` and the one before `though` counts."""
        shape = self.dice.choice(("{so}", "{so} and {too}", "{not_so} but {so}", "{so} though {not_so}"))
        depth = self.depth()
        so, too, not_so = (self._opinions(good, depth) for good in (is_good, is_good, not is_good))
        return shape.format(so=so, too=too, not_so=not_so)

    def _opinions(self, is_good: bool, depth: int) -> str:
        fitting, opposite = (self.words.good, self.words.bad) if is_good else (self.words.bad, self.words.good)
        pairs = zip(self.dice.sample(fitting, depth + 1), self.dice.sample(opposite, depth + 1), strict=True)
        return " and ".join(f"not {other}" if self.dice.chance(self.negation) else one for one, other in pairs)


def reaction(person: Person, matter: Matter, is_good: bool) -> str:
    return f"{person.subject} {finite(matter.reaction(is_good), person.plural)}"


def question(verb: Verb, about_patient: bool) -> str:
    return sentence(f"who is {verb.participle}" if about_patient else f"who {verb.third} somebody", "?")


def finite(verb: Verb, plural: bool, negated: bool = False) -> str:
    if negated:
        return f"{'do' if plural else 'does'} not {verb.base}"
    return verb.base if plural else verb.third


def to_be(plural: bool) -> str:
    return "are" if plural else "is"


def sentence(words: str, end: str = ".") -> str:
    return words[0].upper() + words[1:] + end
