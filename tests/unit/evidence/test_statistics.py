import itertools
import math

import numpy as np
import pytest
from scipy import stats

from sharedqkv.evidence.statistics import (
    McNemar,
    hedges_g,
    holm,
    mcnemar,
    permutation_p,
    smallest_effect,
    smallest_p,
    t_interval,
)


def two_sided(all_differences, observed):
    upper = np.mean([value >= observed - 1e-12 for value in all_differences])
    lower = np.mean([value <= observed + 1e-12 for value in all_differences])
    return min(1.0, 2 * min(upper, lower))


@pytest.mark.parametrize("seed", range(5))
def test_paired_p_equals_trying_all_sign_flips(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0.5, 1, size=6), rng.normal(size=6)
    flipped = [np.mean(np.array(signs) * (a - b)) for signs in itertools.product((1, -1), repeat=6)]
    assert permutation_p(a, b, paired=True) == pytest.approx(two_sided(flipped, np.mean(a - b)))


@pytest.mark.parametrize("seed", range(5))
def test_unpaired_p_equals_trying_all_splits(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(1, 1, size=4), rng.normal(size=5)
    pool = np.concatenate([a, b])
    splits = [
        pool[list(chosen)].mean() - np.delete(pool, chosen).mean() for chosen in itertools.combinations(range(9), 4)
    ]
    assert permutation_p(a, b, paired=False) == pytest.approx(two_sided(splits, a.mean() - b.mean()))


def test_many_units_are_sampled_and_repeatable():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.6, 1, size=20), rng.normal(size=20)
    assert permutation_p(a, b, False, seed=1) == permutation_p(a, b, False, seed=1)
    assert permutation_p(a, b, False) == pytest.approx(stats.ttest_ind(a, b).pvalue, abs=0.02)
    assert permutation_p(a, b, True) == pytest.approx(stats.ttest_rel(a, b).pvalue, abs=0.02)


@pytest.mark.parametrize(
    ("units", "paired", "p"),
    [
        ((6, 6), True, 2 / 64),
        ((3, 3), False, 2 / 20),
        ((4, 5), False, 2 / 126),
        ((1, 1), True, 1.0),
        ((2, 2), True, 0.5),
    ],
)
def test_smallest_p_is_reached_by_the_clearest_result(units, paired, p):
    assert smallest_p(*units, paired) == pytest.approx(p)
    apart = np.arange(units[0]) + 100.0, np.arange(units[1]) * 1.1
    assert permutation_p(*apart, paired) == pytest.approx(p)


def test_smallest_p_of_a_sampled_test():
    assert smallest_p(30, 30, paired=True) == smallest_p(30, 30, paired=False) == pytest.approx(2 / 20_001)
    assert permutation_p(np.arange(30) + 100.0, np.arange(30) * 1.1, paired=False) == pytest.approx(2 / 20_001)


def test_identical_scores_give_one():
    same = np.array([0.5, 0.6, 0.7, 0.8])
    assert permutation_p(same, same, paired=True) == permutation_p(same, same, paired=False) == 1.0


def test_smallest_effect_of_six_pairs_has_a_closed_form():
    # The only results below 0.05 are six differences of one sign.
    effect = stats.norm.ppf(0.8 ** (1 / 6))
    assert smallest_effect(6, 6, True, alpha=0.05) == pytest.approx(effect, rel=0.04)


def test_smallest_effect_nears_the_t_test_with_many_units():
    freedom = 2 * 20 - 2

    def power(effect):
        return stats.nct.sf(stats.t.ppf(0.975, freedom), freedom, effect * math.sqrt(20 / 2))

    assert power(smallest_effect(20, 20, False, alpha=0.05)) == pytest.approx(0.8, abs=0.05)


def test_smallest_effect_grows_with_stricter_tests_and_fewer_units():
    assert smallest_effect(10, 10, True, 0.05 / 9) > smallest_effect(10, 10, True, 0.05)
    assert smallest_effect(5, 5, False, 0.05) > smallest_effect(8, 8, False, 0.05)
    assert smallest_effect(5, 5, True, 0.05) is None, "five pairs reach 0.0625 at best"


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]


def test_holm_keeps_the_family_wise_error():
    rng = np.random.default_rng(0)
    errors = np.mean([min(holm(rng.random(8))) <= 0.05 for _ in range(4000)])
    assert errors == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 4000))


def test_mcnemar_counts_what_only_one_got_right():
    right_a = np.array([True] * 10 + [False] * 2 + [True] * 5)
    right_b = np.array([False] * 10 + [True] * 2 + [True] * 5)
    tail = sum(math.comb(12, k) for k in range(3)) / 2**12
    assert mcnemar(right_a, right_b) == McNemar(10, 2, pytest.approx(2 * tail))
    assert mcnemar(right_a, right_a) == McNemar(0, 0, 1.0)


def test_hedges_g():
    a, b = np.array([3.0, 5.0, 7.0]), np.array([1.0, 2.0, 3.0])
    assert hedges_g(a, b) == pytest.approx(3 / math.sqrt((8 + 2) / 4) * (1 - 3 / 15))
    assert hedges_g(a[:1], b[:1]) is None
    assert hedges_g(np.ones(3), np.zeros(3)) is None, "without spread there is no unit to measure in"


def test_t_interval_of_one_part_is_students():
    values = np.array([1.0, 2.0, 4.0])
    expected = stats.t.interval(0.95, 2, loc=values.mean(), scale=stats.sem(values))
    assert t_interval(values.mean(), [(values.var(ddof=1) / 3, 2)], 0.95) == pytest.approx(expected)


def test_t_interval_of_two_parts_is_welchs():
    a, b = np.array([1.0, 2.0, 4.0]), np.array([0.0, 5.0, 1.0, 9.0])
    welch = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    parts = [(values.var(ddof=1) / len(values), len(values) - 1) for values in (a, b)]
    assert t_interval(a.mean() - b.mean(), parts, 0.95) == pytest.approx((welch.low, welch.high))


def test_t_interval_without_variance_is_a_point():
    assert t_interval(0.3, [(0.0, 2), (0.0, 10)], 0.95) == (0.3, 0.3)
