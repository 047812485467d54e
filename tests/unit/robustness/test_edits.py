import random

import pytest

from sharedqkv.robustness.edits import Edit, Edited, Fences, apply, pick


@pytest.mark.parametrize(
    ("place", "stopped"),
    [
        ((0, 2), False),
        ((0, 3), True),  # the space beside "not"
        ((2, 2), False),
        ((3, 3), True),
        ((4, 5), True),
        ((6, 6), True),
        ((6, 7), True),
        ((7, 9), False),
    ],
)
def test_fences_around_a_protected_word(place, stopped):
    text = "it not so"
    assert Fences(text, [], protect_words=True).stop(*place) == stopped
    assert not Fences(text, [], protect_words=False).stop(*place)


@pytest.mark.parametrize(
    ("place", "stopped"),
    [
        ((0, 2), False),
        ((1, 3), True),
        ((2, 4), False),
        ((3, 5), True),
        ((1, 5), True),
        ((2, 2), False),
        ((4, 6), False),
    ],
)
def test_fences_at_the_borders_of_a_span(place, stopped):
    assert Fences("abcdef", [(2, 4)], protect_words=True).stop(*place) == stopped


def picked(budget: float, seed: int, places: list[tuple[int, int]], text: str = "abcdefghij" * 3) -> list[Edit]:
    fences = Fences(text, [], protect_words=True)
    return pick(text, places, lambda old, draw: f"{draw:.3f}"[: len(old)], budget, fences, random.Random(seed))


def test_a_larger_budget_only_adds_edits():
    places = [(start, start + length) for start in range(25) for length in (1, 3)]
    for seed in range(50):
        small, large = picked(4.5, seed, places), picked(9.2, seed, places)
        assert large[: len(small)] == small


def test_picked_edits_do_not_overlap():
    edits = picked(1000, 0, [(start, start + 3) for start in range(25)])
    covered = [place for edit in edits for place in range(edit.start, edit.end)]
    assert len(covered) == len(set(covered)) > 15


def test_the_mean_is_the_budget():
    places = [(0, 7), (7, 10), (10, 11), (11, 16), (16, 30)]
    spent = [sum(edit.end - edit.start for edit in picked(2.5, seed, places)) for seed in range(20_000)]
    assert sum(spent) / len(spent) == pytest.approx(2.5, abs=0.08)


def test_spans_move():
    edited = Edited("one two three", [Edit(4, 7, "2"), Edit(0, 0, ">"), Edit(3, 4, ""), Edit(13, 13, "!")])
    assert edited.text == ">one2 three!"
    assert edited.move((0, 0)) == (1, 1)
    moved = {span: edited.move(span) for span in [(0, 3), (4, 7), (8, 13), (0, 13), (13, 13)]}
    assert {span: edited.text[slice(*place)] for span, place in moved.items()} == {
        (0, 3): "one", (4, 7): "2", (8, 13): "three", (0, 13): "one2 three", (13, 13): "",
    }  # fmt: skip


def test_harmful_edits_are_undone_and_others_stay():
    text, harmless = "on the cat", Edit(5, 6, "")
    negation, blank = Edit(0, 2, "no"), Edit(7, 10, " ")
    assert apply(text, [negation, harmless], [], protect_words=True).text == "on th cat"
    assert apply(text, [negation, harmless], [], protect_words=False).text == "no th cat"
    assert apply(text, [harmless, blank], [(7, 10)], protect_words=False).text == "on th cat"
    assert apply(text, [harmless, blank], [], protect_words=False).text == "on th  "


def test_edits_that_are_harmful_only_together_are_undone_together():
    edits = [Edit(0, 1, ""), Edit(4, 5, "")]
    assert apply("knots", edits[:1], [], protect_words=True).text == "nots"
    assert apply("knots", edits, [], protect_words=True).text == "knots"


def test_undoing_may_uncover_another_harm():
    """Without its space, "no thing" would become "nothing"."""
    assert apply("notzhing", [Edit(2, 2, " "), Edit(3, 4, "")], [], protect_words=True).text == "notzhing"
