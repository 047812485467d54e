"""The bootstrap: scores on resampled examples, and means over resampled seeds.

A resample of n examples is a row of n counts that add up to n. Most metrics follow from counts by a few matrix
products, for all resamples at once; the rest are computed on the repeated examples, one by one.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sharedqkv.tasks.metrics import Metric, accuracy, f1, matthews, pearson, spearman

_MAX_COUNTS = 8_000_000
"""Counts held at once, to bound the memory."""


def mean_score(labels: np.ndarray, scores: np.ndarray) -> float:
    """The metric for predictions that are scored one by one already, like SQuAD's F1; labels are not used."""
    return float(np.mean(scores))


def resampled_scores(
    labels: np.ndarray, predictions_RN: np.ndarray, metrics: Sequence[Metric], draws: int, seed: int
) -> np.ndarray:
    """Score of each run on `draws` resamples of the examples, the same for all runs; several metrics are averaged."""
    rng = np.random.default_rng(seed)
    parts = []
    for counts_DN in _resamples(len(labels), draws, rng):
        parts.append(np.mean([_scores(metric, counts_DN, labels, predictions_RN) for metric in metrics], axis=0))
    return np.concatenate(parts, axis=1)


def hierarchical_bootstrap(
    units_a: Sequence[np.ndarray], units_b: Sequence[np.ndarray], paired: bool, seed: int
) -> np.ndarray:
    """Draws of the difference of means (A − B) with units, runs within them and examples all resampled.

    A unit is a pre-training seed (or a fine-tuning seed, where there is one checkpoint); its array holds a row for
    each run and a column for each resample of the examples. Paired units are drawn together.
    """
    rng = np.random.default_rng(seed)
    draws = units_a[0].shape[1]
    chosen_a = rng.integers(len(units_a), size=(len(units_a), draws))
    chosen_b = chosen_a if paired else rng.integers(len(units_b), size=(len(units_b), draws))
    return _mean_of_chosen(units_a, chosen_a, rng) - _mean_of_chosen(units_b, chosen_b, rng)


def _mean_of_chosen(units: Sequence[np.ndarray], chosen_UD: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    total_D = np.zeros(chosen_UD.shape[1])
    for chosen_D in chosen_UD:
        for index, scores_RD in enumerate(units):
            picked = np.flatnonzero(chosen_D == index)
            runs = rng.integers(len(scores_RD), size=(len(scores_RD), len(picked)))
            total_D[picked] += scores_RD[runs, picked].mean(axis=0)
    return total_D / len(chosen_UD)


def _resamples(num_examples: int, draws: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    chunk = max(1, _MAX_COUNTS // num_examples)
    for first in range(0, draws, chunk):
        rows = min(chunk, draws - first)
        picked = rng.integers(num_examples, size=(rows, num_examples)) + num_examples * np.arange(rows)[:, None]
        counts = np.bincount(picked.ravel(), minlength=rows * num_examples)
        yield counts.reshape(rows, num_examples).astype(float)


def _scores(metric: Metric, counts_DN: np.ndarray, labels_N: np.ndarray, predictions_RN: np.ndarray) -> np.ndarray:
    """Of each run in each resample."""
    by_counts = _BY_COUNTS.get(metric)
    if metric in (f1, matthews) and not (np.isin(labels_N, (0, 1)).all() and np.isin(predictions_RN, (0, 1)).all()):
        by_counts = None
    if by_counts is not None:
        return by_counts(counts_DN, labels_N, predictions_RN)
    repeated = [np.repeat(np.arange(len(labels_N)), counts.astype(int)) for counts in counts_DN]
    return np.array([[metric(labels_N[picked], run[picked]) for picked in repeated] for run in predictions_RN])


def _accuracy(counts_DN: np.ndarray, labels_N: np.ndarray, predictions_RN: np.ndarray) -> np.ndarray:
    return (labels_N == predictions_RN) @ counts_DN.T / len(labels_N)


def _mean_score(counts_DN: np.ndarray, labels_N: np.ndarray, scores_RN: np.ndarray) -> np.ndarray:
    return scores_RN @ counts_DN.T / len(labels_N)


def _f1(counts_DN: np.ndarray, labels_N: np.ndarray, predictions_RN: np.ndarray) -> np.ndarray:
    both_RD, predicted_RD = (values @ counts_DN.T for values in (labels_N * predictions_RN, predictions_RN))
    return _ratio(2 * both_RD, counts_DN @ labels_N + predicted_RD)


def _pearson(counts_DN: np.ndarray, labels_N: np.ndarray, predictions_RN: np.ndarray) -> np.ndarray:
    # About their means, so that little is lost in the differences below.
    x_N, y_RN = labels_N - labels_N.mean(), predictions_RN - predictions_RN.mean(axis=1, keepdims=True)
    mean_x, square_x, mean_y, square_y, product = (
        values @ counts_DN.T / len(labels_N) for values in (x_N, x_N * x_N, y_RN, y_RN * y_RN, x_N * y_RN)
    )
    variances_RD = np.maximum(square_x - mean_x**2, 0) * np.maximum(square_y - mean_y**2, 0)
    return _ratio(product - mean_x * mean_y, np.sqrt(variances_RD))


def _spearman(counts_DN: np.ndarray, labels_N: np.ndarray, predictions_RN: np.ndarray) -> np.ndarray:
    x_DN = _ranks(counts_DN, labels_N)
    weighted_x_DN = counts_DN * x_DN
    variance_x_D = _sums(weighted_x_DN, x_DN)
    correlations = []
    for predictions_N in predictions_RN:
        y_DN = _ranks(counts_DN, predictions_N)
        variance_y_D = _sums(counts_DN * y_DN, y_DN)
        correlations.append(_ratio(_sums(weighted_x_DN, y_DN), np.sqrt(variance_x_D * variance_y_D)))
    return np.array(correlations)


def _sums(a_DN: np.ndarray, b_DN: np.ndarray) -> np.ndarray:
    """Of products, in each resample."""
    return np.einsum("dn,dn->d", a_DN, b_DN)


def _ranks(counts_DN: np.ndarray, values_N: np.ndarray) -> np.ndarray:
    """Rank of every example within each resample, about the middle one; equal values share their mean rank."""
    distinct, group_N = np.unique(values_N, return_inverse=True)
    order = np.argsort(group_N, kind="stable")
    firsts = np.searchsorted(group_N[order], np.arange(len(distinct)))
    size_DG = np.add.reduceat(counts_DN[:, order], firsts, axis=1)
    return (np.cumsum(size_DG, axis=1) - (size_DG + len(values_N)) / 2)[:, group_N]


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """0 where the denominator is 0: what an undefined metric scores."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 1e-12)


_BY_COUNTS: dict[Metric, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    accuracy: _accuracy,
    f1: _f1,
    matthews: _pearson,  # of two classes 0 and 1 they are one
    pearson: _pearson,
    spearman: _spearman,
    mean_score: _mean_score,
}
"""Metrics that follow from counts; a test holds each to the metric itself on repeated examples."""
