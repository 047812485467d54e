"""What holds for any text: empty, emoji, combining marks, right to left, lone surrogates."""

import itertools
import re
from collections.abc import Iterable

from hypothesis import example, given
from hypothesis import strategies as st

from sharedqkv.robustness.text_noise import RATES, TEXT_NOISES, corrupt


def spans_in(text: str) -> st.SearchStrategy[list[tuple[int, int]]]:
    place = st.integers(0, len(text))
    return st.lists(st.tuples(place, place).map(lambda pair: (min(pair), max(pair))), max_size=4)


SNIPPETS = [
    *("not", "n’t", "don't", "on", "w", " no ", "12", "3.5", "l", "word", " ", "\n", ".", ",", "'", "\ud800"),
    *("e\u0301", "Straße", "سلام", "שלום", "漢字", "क्\u200dष", "👩‍👩‍👧", "👍🏽", "🇪🇺", "ℹ️"),
]
texts = st.one_of(st.text(), st.lists(st.sampled_from(SNIPPETS)).map("".join))
with_spans = texts.flatmap(lambda text: st.tuples(st.just(text), spans_in(text)))
noises, severities = st.sampled_from(list(TEXT_NOISES)), st.integers(1, len(RATES))


@given(with_spans, noises, severities, st.integers(), st.text())
def test_any_text_keeps_something_and_its_spans(text_and_spans, noise, severity, seed, key):
    text, spans = text_and_spans
    corrupted = corrupt(text, noise, severity, seed, key, spans)
    assert corrupted == corrupt(text, noise, severity, seed, key, spans)
    assert len(corrupted.spans) == len(spans)
    regions = [((0, len(text)), (0, len(corrupted.text))), *zip(spans, corrupted.spans, strict=True)]
    for (start, end), (new_start, new_end) in regions:
        assert 0 <= new_start <= new_end <= len(corrupted.text)
        old, new = text[start:end], corrupted.text[new_start:new_end]
        assert bool(old) == bool(new)
        assert new.strip() or not old.strip()


@given(with_spans, noises, st.integers())
@example(("", []), "drop", 0)
def test_severity_0_is_the_identity(text_and_spans, noise, seed):
    text, spans = text_and_spans
    corrupted = corrupt(text, noise, 0, seed, spans=spans)
    assert corrupted.text == text
    assert corrupted.spans == tuple(spans)


def is_part(few: Iterable[str], many: Iterable[str]) -> bool:
    """Whether `few` are among `many`, in this order."""
    rest = iter(many)
    return all(one in rest for one in few)


@given(with_spans, st.sampled_from(["drop", "word_drop", "punctuation", "insert", "repeat", "word_repeat"]), severities)
def test_edits_stay_on_their_side_of_a_border(text_and_spans, noise, severity):
    text, spans = text_and_spans
    corrupted = corrupt(text, noise, severity, 0, spans=spans)
    shrinks = noise in ("drop", "word_drop", "punctuation")
    for (start, end), (new_start, new_end) in zip(spans, corrupted.spans, strict=True):
        old_parts = text[:start], text[start:end], text[end:]
        new_parts = corrupted.text[:new_start], corrupted.text[new_start:new_end], corrupted.text[new_end:]
        for old, new in zip(old_parts, new_parts, strict=True):
            assert is_part(new, old) if shrinks else is_part(old, new)


@given(texts, noises, severities)
def test_negations_and_numbers_stay_and_none_is_made(text, noise, severity):
    corrupted = corrupt(text, noise, severity, 0).text
    assert negations_and_numbers(corrupted) == negations_and_numbers(text)
    if noise != "casing":
        assert is_part(words_with_digits(text), words_with_digits(corrupted))


def negations_and_numbers(text: str) -> list[str]:
    return re.findall(r"(?<!\w)(?:no|not|never|\w*n['’]t|\d+)(?!\w)", text.lower())


def words_with_digits(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text) if re.search(r"\d", word)]


def test_a_higher_severity_adds_to_the_edits_of_a_lower_one():
    text = "The sailor found the broken compass while everybody slept"
    for seed in range(20):
        shorter = [corrupt(text, "drop", severity, seed).text for severity in range(6)]
        longer = [corrupt(text, "insert", severity, seed).text for severity in range(6)]
        assert all(is_part(after, before) for before, after in itertools.pairwise(shorter))
        assert all(is_part(before, after) for before, after in itertools.pairwise(longer))
