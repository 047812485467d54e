import pytest

from sharedqkv.robustness.exclusions import EXCLUSIONS, excluded
from sharedqkv.robustness.text_noise import TEXT_NOISES
from sharedqkv.tasks.built_in import BUILT_IN
from sharedqkv.tasks.glue import GLUE
from sharedqkv.tasks.squad import SQUAD

TAKE_ALL = {"sst2", "squad", "sentiment", "span_qa"}


def test_every_task_was_thought_of():
    assert set(EXCLUSIONS) | TAKE_ALL == {*GLUE, *SQUAD, *BUILT_IN}
    assert not set(EXCLUSIONS) & TAKE_ALL
    assert all(set(reasons) <= set(TEXT_NOISES) and all(reasons.values()) for reasons in EXCLUSIONS.values())


@pytest.mark.parametrize(
    ("task", "taken"),
    [
        ("cola", set()),
        ("wnli", {"word_repeat", "casing", "punctuation"}),
        ("mnli", set(TEXT_NOISES) - {"word_drop", "word_swap"}),
        ("squad_v2", set(TEXT_NOISES) - {"word_drop", "word_swap"}),
        ("sst2", set(TEXT_NOISES)),
        ("a task of one's own", set(TEXT_NOISES)),
    ],
)
def test_what_is_taken(task, taken):
    assert {noise for noise in TEXT_NOISES if excluded(task, noise) is None} == taken


def test_a_reason_is_given():
    assert "form of a sentence" in excluded("cola", "casing")
    assert "pronoun" in excluded("wnli", "drop")


def test_unknown_noise():
    with pytest.raises(ValueError, match="unknown text noise 'typo'; known are keyboard"):
        excluded("sst2", "typo")
