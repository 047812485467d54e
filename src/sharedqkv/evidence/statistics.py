"""Tests, intervals and effect sizes for two small groups of seeds; `comparison` puts them together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import stats

_MAX_REARRANGEMENTS = 20_000
"""Up to here the permutation test is exact; beyond, so many are drawn."""


def permutation_p(a: np.ndarray, b: np.ndarray, paired: bool, seed: int = 0) -> float:
    """Two-sided p of a difference of means, by swapping within pairs or by splitting the units in all ways."""
    if min(len(a), len(b)) < 2:
        return 1.0
    return float(_permutation_p(np.asarray(a), np.asarray(b), paired, _MAX_REARRANGEMENTS, seed))


def smallest_p(units_a: int, units_b: int, paired: bool) -> float:
    """The smallest p this design can reach, whatever the scores."""
    if min(units_a, units_b) < 2:
        return 1.0
    all_rearrangements = 2**units_a if paired else math.comb(units_a + units_b, units_a)
    return 2 / min(all_rearrangements, _MAX_REARRANGEMENTS + 1)


@cache
def smallest_effect(units_a: int, units_b: int, paired: bool, alpha: float, power: float = 0.8) -> float | None:
    """The difference, in standard deviations of the seeds, that the permutation test finds with this power.

    None if the design cannot reach `alpha`. Simulated with normal noise; for a paired design the standard deviation
    is that of the differences within pairs. Right to about 3 %.
    """
    if smallest_p(units_a, units_b, paired) > alpha:
        return None
    rng = np.random.default_rng(0)
    noise_a, noise_b = rng.normal(size=(1000, units_a)), rng.normal(size=(1000, units_b))
    if paired:
        noise_b = np.zeros_like(noise_a)
    low, high = 0.0, 1.0
    while _share_found(noise_a + high, noise_b, paired, alpha) < power:
        low, high = high, 2 * high
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        if _share_found(noise_a + middle, noise_b, paired, alpha) < power:
            low = middle
        else:
            high = middle
    return high


def _share_found(a: np.ndarray, b: np.ndarray, paired: bool, alpha: float) -> float:
    # Enough rearrangements that p can fall well below alpha, and no more: there are many tests.
    rearrangements = min(_MAX_REARRANGEMENTS, math.ceil(20 / alpha))
    return float(np.mean(_permutation_p(a, b, paired, rearrangements, seed=0) <= alpha))


def _permutation_p(a: np.ndarray, b: np.ndarray, paired: bool, rearrangements: int, seed: int) -> np.ndarray:
    """Over the last axis. With one sample of differences SciPy flips signs: the same as swapping within pairs."""
    result = stats.permutation_test(
        (a - b,) if paired else (a, b),
        (lambda x, axis: x.mean(axis)) if paired else (lambda x, y, axis: x.mean(axis) - y.mean(axis)),
        permutation_type="samples" if paired else "independent",
        vectorized=True,
        n_resamples=rearrangements,
        batch=100,
        axis=-1,
        rng=np.random.default_rng(seed),
    )
    return result.pvalue


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction over a family of tests: compare the result with alpha."""
    order = np.argsort(p_values)
    steps = np.asarray(p_values, dtype=float)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return corrected.tolist()


@dataclass(frozen=True)
class McNemar:
    only_a_right: int
    only_b_right: int
    p: float


def mcnemar(right_a: np.ndarray, right_b: np.ndarray) -> McNemar:
    """Exact test of two runs on the same examples. It knows nothing of other seeds: a description of these two runs."""
    only_a, only_b = int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())
    p = stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    return McNemar(only_a, only_b, float(p))


def hedges_g(a: np.ndarray, b: np.ndarray) -> float | None:
    """Difference of means in pooled standard deviations, corrected for few units; None without any spread."""
    freedom = len(a) + len(b) - 2
    if freedom < 2:
        return None
    pooled = math.sqrt((np.sum((a - a.mean()) ** 2) + np.sum((b - b.mean()) ** 2)) / freedom)
    if pooled == 0:
        return None
    small_sample = 1 - 3 / (4 * freedom - 1)
    return float(small_sample * (a.mean() - b.mean()) / pooled)


def t_interval(center: float, parts: Sequence[tuple[float, float]], level: float) -> tuple[float, float]:
    """An interval around an estimate whose variance is a sum of parts, each (variance, degrees of freedom).

    The degrees of freedom of the sum are Satterthwaite's.
    """
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return center, center
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    reach = stats.t.ppf((1 + level) / 2, freedom) * math.sqrt(variance)
    return float(center - reach), float(center + reach)
