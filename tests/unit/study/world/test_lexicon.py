"""Familiar and new words share nothing, and no form is ambiguous."""

import dataclasses
from collections import Counter

from sharedqkv.study.world.lexicon import GIVING, HATE, LIKE, PREPOSITIONS, WORDS, Matter, Noun, Verb, Words


def forms(entry) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    if isinstance(entry, Noun | Verb):
        return [form for form in dataclasses.astuple(entry) if form]
    if isinstance(entry, Matter):
        return [form for verb in (*entry.kind, *entry.unkind, entry.joy, entry.grief) for form in forms(verb)]
    return [form for part in entry for form in forms(part)]


def all_forms(words: Words) -> list[str]:
    return [form for field in dataclasses.fields(words) for form in forms(getattr(words, field.name))]


def test_no_form_means_two_things():
    everything = all_forms(WORDS) + forms((GIVING, LIKE, HATE, PREPOSITIONS))
    assert [form for form, count in Counter(everything).items() if count > 1] == []


def test_familiar_and_new_words_are_all_words_once():
    familiar, new = all_forms(WORDS.familiar()), all_forms(WORDS.new())
    assert sorted(familiar + new) == sorted(all_forms(WORDS))
    for field in dataclasses.fields(Words):
        assert len(getattr(WORDS.new(), field.name)) * 4 == len(getattr(WORDS, field.name))
