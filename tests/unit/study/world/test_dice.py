"""Throws are the same everywhere and hang on their name alone."""

from sharedqkv.study.world.dice import Dice


def test_the_sequence_is_fixed():
    dice = Dice(0, "test")
    assert [dice.choice(range(100)) for _ in range(8)] == [76, 37, 23, 58, 44, 8, 60, 22]


def test_names_give_different_throws():
    throws = {name: [Dice(0, name).choice(range(10**6)) for _ in range(2)] for name in ("one", "two")}
    assert throws["one"][0] == throws["one"][1]
    assert throws["one"] != throws["two"]


def test_a_sample_has_no_repeats_and_leaves_the_options():
    options = list(range(10))
    for number in range(50):
        assert len(set(Dice(number).sample(options, 10))) == 10
    assert options == list(range(10))


def test_chance_has_the_share_asked_for():
    dice = Dice(0)
    assert 0.22 < sum(dice.chance(0.25) for _ in range(4000)) / 4000 < 0.28
