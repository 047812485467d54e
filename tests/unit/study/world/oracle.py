"""Solves the tasks of the world from their text alone: a parser that knows the words and the grammar."""

import re
from dataclasses import dataclass
from typing import Any

from sharedqkv.study.world.lexicon import GIVING, PREPOSITIONS, WORDS, Matter

PRONOUNS = {"he": "man", "him": "man", "himself": "man", "she": "woman", "her": "woman", "herself": "woman"}
PRONOUNS |= dict.fromkeys(("they", "them", "themselves"), "many")
PEOPLE = {noun.many: "many" for noun in WORDS.men + WORDS.women}
PEOPLE |= {noun.one: "man" for noun in WORDS.men} | {noun.one: "woman" for noun in WORDS.women}
DEEDS: dict[str, tuple[Matter, bool]] = {}
"""Any form of a verb → what it is about, and whether it is kind."""
REACTIONS: dict[str, tuple[Matter, bool, bool]] = {}
"""Any form of a verb → what it answers, whether with joy, and whether it is a plural."""
PLURAL_VERBS: set[str] = set()
for _matter in (*WORDS.matters, GIVING):
    for _is_kind in (True, False):
        for _verb in _matter.verbs(_is_kind):
            PLURAL_VERBS.add(_verb.base)
            DEEDS |= {form: (_matter, _is_kind) for form in (_verb.base, _verb.third, _verb.participle) if form}
        _verb = _matter.reaction(_is_kind)
        REACTIONS |= {_verb.base: (_matter, _is_kind, True), _verb.third: (_matter, _is_kind, False)}


@dataclass(frozen=True)
class Someone:
    kind: str
    noun: str
    place: tuple[str, ...]
    start: int
    text: str


@dataclass(frozen=True)
class Deed:
    agent: Someone
    patient: Someone
    matter: Matter
    is_kind: bool
    negated: bool
    gift: str

    @property
    def is_good(self) -> bool:
        return self.is_kind != self.negated


class Parser:
    def __init__(self, text: str):
        self.text = text
        self.words = [(match[0].lower(), match.start(), match.end()) for match in re.finditer(r"\w+|[.?]", text)]
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        return self.words[self.at + ahead][0]

    def take(self, *expected: str) -> str:
        word = self.peek()
        assert not expected or word in expected, f"{self.text!r}: {word!r} where {expected} should stand"
        self.at += 1
        return word

    def someone(self) -> Someone:
        """the king [near the mill … | who helps the queen … | who the queen … helps]"""
        start = self.words[self.at][1]
        if self.peek() in PRONOUNS:
            noun, kind, place = self.peek(), PRONOUNS[self.take()], ()
        else:
            self.take("the")
            noun = self.take()
            kind = PEOPLE[noun]
            place = self.place()
            if self.peek() == "who":
                self.relative_clause(kind)
        return Someone(kind, noun, place, start, self.text[start : self.words[self.at - 1][2]])

    def place(self) -> tuple[str, ...]:
        words: tuple[str, ...] = ()
        while self.peek() in PREPOSITIONS:
            words += (self.take(), self.take("the"), self.take())
        return words

    def relative_clause(self, kind: str) -> None:
        self.take("who")
        if self.peek() == "the":
            kind = self.someone().kind
            assert (self.take() in PLURAL_VERBS) == (kind == "many")
        else:
            assert (self.take() in PLURAL_VERBS) == (kind == "many")
            self.someone()

    def deed(self) -> Deed:
        first = self.someone()
        if self.peek() in ("is", "are"):
            self.take("are" if first.kind == "many" else "is")
            negated = self.negation()
            matter, is_kind = DEEDS[self.take()]
            self.take("by")
            return Deed(self.someone(), first, matter, is_kind, negated, "")
        negated = self.peek() in ("do", "does")
        if negated:
            self.take("do" if first.kind == "many" else "does")
            self.negation()
        matter, is_kind = DEEDS[self.take()]
        if self.peek(1) in WORDS.gifts:
            gift = self.gift()
            self.take("to")
            return Deed(first, self.someone(), matter, is_kind, negated, gift)
        second = self.someone()
        return Deed(first, second, matter, is_kind, negated, self.gift() if self.peek() == "the" else "")

    def negation(self) -> bool:
        return self.peek() == "not" and self.take("not") == "not"

    def gift(self) -> str:
        self.take("the")
        return self.take(*WORDS.gifts)


def acceptability(row: dict[str, Any]) -> int:
    parser = Parser(row["sentence"])
    subject = parser.someone()
    verb = parser.take()
    if verb in REACTIONS:
        return int(REACTIONS[verb][2] == (subject.kind == "many"))
    agrees = (verb in PLURAL_VERBS) == (subject.kind == "many")
    return int(agrees and PRONOUNS[parser.take()] == subject.kind)


def sentiment(row: dict[str, Any]) -> int:
    words = row["sentence"].lower().rstrip(".").split()
    if "but" in words:
        words = words[words.index("but") :]
    if "though" in words:
        words = words[: words.index("though")]
    place = next(place for place, word in enumerate(words) if word in WORDS.good + WORDS.bad)
    return int((words[place] in WORDS.good) != (words[place - 1] == "not"))


def paraphrase(row: dict[str, Any]) -> int:
    return int(similarities(row) == [True] * 5 and _deeds(row)[0].gift == _deeds(row)[1].gift)


def similarity(row: dict[str, Any]) -> float:
    return float(sum(similarities(row)))


def similarities(row: dict[str, Any]) -> list[bool]:
    one, two = _deeds(row)
    return [
        one.agent.noun == two.agent.noun,
        one.patient.noun == two.patient.noun,
        (one.matter, one.is_kind) == (two.matter, two.is_kind),
        one.negated == two.negated,
        bool(one.agent.place) == bool(two.agent.place),
    ]


def _deeds(row: dict[str, Any]) -> tuple[Deed, Deed]:
    return Parser(row["sentence1"]).deed(), Parser(row["sentence2"]).deed()


def entailment(row: dict[str, Any]) -> int:
    deed = Parser(row["sentence1"]).deed()
    hypothesis = Parser(row["sentence2"])
    person, (matter, is_joy, _) = hypothesis.someone(), REACTIONS[hypothesis.take()]
    follows = person.kind == deed.patient.kind and (matter, is_joy) == (deed.matter, deed.is_good)
    return 0 if follows else 1


def span_qa(row: dict[str, Any]) -> tuple[str, int]:
    parser = Parser(row["context"])
    third = Parser(row["context"])
    third.someone()
    if third.peek() in REACTIONS:  # the other sentence comes first
        parser.at = [word for word, _, _ in parser.words].index(".") + 1
    deed = parser.deed()
    answer = deed.patient if row["question"].startswith("Who is ") else deed.agent
    return answer.text, answer.start
