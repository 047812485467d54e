"""Clauses are English: agreement, voices, gifts, negation, nesting."""

from dataclasses import replace

import pytest

from sharedqkv.study.world.dice import Dice
from sharedqkv.study.world.grammar import Event, Person, Speaker, reaction, sentence
from sharedqkv.study.world.lexicon import GIVING, WORDS

KING = Person("man", "the king", "the king")
NUNS = Person("many", "the nuns", "the nuns")
HELP = Event(KING, NUNS, WORDS.matters[0], is_kind=True)
GIVE = Event(KING, NUNS, GIVING, is_kind=True, gift="ring")


@pytest.mark.parametrize(
    ("event", "turned", "clause"),
    [
        (HELP, False, "the king helps the nuns"),
        (HELP, True, "the nuns are helped by the king"),
        (HELP.swapped(), False, "the nuns help the king"),
        (HELP.reworded(), False, "the king assists the nuns"),
        (HELP.with_pronouns(), True, "they are helped by him"),
        (replace(HELP, negated=True), False, "the king does not help the nuns"),
        (replace(HELP, negated=True), True, "the nuns are not helped by the king"),
        (replace(HELP, is_kind=False), False, "the king hinders the nuns"),
        (GIVE, False, "the king gives the nuns the ring"),
        (GIVE, True, "the king gives the ring to the nuns"),
    ],
)
def test_clauses(event, turned, clause):
    assert event.clause(turned) == clause


def test_denied_kindness_is_bad():
    assert HELP.is_good
    assert not replace(HELP, negated=True).is_good
    assert replace(HELP, negated=True, is_kind=False).is_good


def test_sentences():
    assert sentence(reaction(NUNS, HELP.matter, is_good=False)) == "The nuns frown."
    assert KING.at("near the mill").subject == "the king near the mill"


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_depth_is_how_often_something_is_within_something(depth):
    speaker = Speaker(Dice("depth", depth), WORDS, negation=0.1, depths=(depth,))
    for _ in range(50):
        assert speaker.person(speaker.kind()).subject.count("the ") == depth + 1


@pytest.mark.parametrize("is_good", [True, False])
def test_an_opinion_never_says_an_adjective_twice_in_a_row(is_good):
    speaker = Speaker(Dice("opinions"), WORDS.new(), negation=0.25, depths=(1,))
    for _ in range(100):
        for part in speaker.verdict(is_good).replace(" though ", " but ").split(" but "):
            if part.count(" and ") == 1:
                first, second = part.split(" and ")
                assert first != second
