import pytest

from sharedqkv.accounting.bench.summary import summarise


def test_medians_quartiles_and_speed():
    found = summarise({"a": [2.0, 1.0, 3.0, 100.0, 2.0], "b": [1.0] * 5}, tokens=10)
    assert found["a"].median_s == 2
    assert found["a"].quartiles_s == (2, 3)
    assert found["a"].tokens_per_s == 5
    assert (found["a"].speed, found["b"].speed) == (1, 2)


def test_the_first_is_as_fast_as_itself():
    assert summarise({"a": [1.0, 5.0, 9.0]}, 1)["a"].speed_interval == (1, 1)


def test_what_slows_a_round_for_both_does_not_widen_the_interval():
    slow_and_fast = [1.0, 3.0, 2.0, 7.0, 5.0]
    found = summarise({"a": slow_and_fast, "b": [seconds / 2 for seconds in slow_and_fast]}, 1)["b"]
    assert found.speed_interval == pytest.approx((2, 2))


def test_the_interval_holds_the_speed_and_grows_with_the_noise():
    first = [1.0] * 8
    calm = summarise({"a": first, "b": [0.9, 0.91, 0.89, 0.9, 0.92, 0.9, 0.88, 0.9]}, 1)["b"]
    wild = summarise({"a": first, "b": [0.5, 1.5, 0.9, 0.7, 1.2, 0.9, 1.1, 0.6]}, 1)["b"]
    for found in (calm, wild):
        assert found.speed_interval[0] <= found.speed <= found.speed_interval[1]
    assert calm.speed_interval[1] - calm.speed_interval[0] < wild.speed_interval[1] - wild.speed_interval[0]


def test_one_round_has_no_interval():
    assert summarise({"a": [1.0], "b": [2.0]}, 1)["b"].speed_interval is None
