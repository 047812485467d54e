"""Stories are one mood, a few people, all words, and text that context predicts."""

import re
from collections import Counter

from unit.study.world.test_lexicon import all_forms

from sharedqkv.study.world import World
from sharedqkv.study.world.lexicon import GIVING, WORDS

STORIES = list(World().documents(600))


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z]+|[.?]", text.lower())


def test_every_word_occurs_often_enough_to_be_learnt():
    counts = Counter(word for text in STORIES for word in words_of(text))
    rare = {form: counts[form] for form in all_forms(WORDS) if counts[form] < 5}
    assert not rare
    assert len(counts) < 260


def test_a_story_has_one_mood():
    joy = {form for matter in (*WORDS.matters, GIVING) for form in (matter.joy.base, matter.joy.third)}
    grief = {form for matter in (*WORDS.matters, GIVING) for form in (matter.grief.base, matter.grief.third)}
    for text in STORIES:
        assert not (joy & set(words_of(text)) and grief & set(words_of(text)))


def test_sentences_are_short():
    lengths = [len(words_of(part)) for text in STORIES for part in re.findall(r"[^.?]+[.?]", text)]
    assert max(lengths) <= 14
    assert 4 < sum(lengths) / len(lengths) < 8


def test_stories_are_many():
    assert len(set(STORIES)) == len(STORIES)
