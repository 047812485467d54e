"""The bootstrap: scores on resampled examples, and means over resampled seeds.

A resample of n examples is a column of n counts that add up to n. Most metrics follow from counts by a few matrix
products, for all resamples at once; the rest are computed on the repeated examples, one by one.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sharedqkv.tasks.metrics import Metric, accuracy, checked, f1, matthews, pearson, spearman

_MAX_COUNTS = 8_000_000
"""Counts held at once, to bound the memory."""


def mean_score(labels: np.ndarray, scores: np.ndarray) -> float:
    """The metric for predictions that are scored one by one already, like SQuAD's F1; labels are not used."""
    return float(np.mean(scores))


def plain_scores(labels: np.ndarray, predictions_RN: np.ndarray, metrics: Sequence[Metric]) -> np.ndarray:
    """Score of each run on all examples, each counted once; several metrics are averaged."""
    for run in predictions_RN:
        checked(labels, run)  # NaN would pass for a low score in the forms by counts
    once_N1 = np.ones((len(labels), 1))
    return np.mean([_scores(metric, once_N1, labels, predictions_RN) for metric in metrics], axis=0)[:, 0]


def resampled_scores(
    labels: np.ndarray, predictions_RN: np.ndarray, metrics: Sequence[Metric], draws: int, seed: int
) -> np.ndarray:
    """Score of each run on `draws` resamples of the examples, the same for all runs; several metrics are averaged."""
    rng = np.random.default_rng(seed)
    parts = []
    for counts_ND in _resamples(len(labels), draws, rng):
        parts.append(np.mean([_scores(metric, counts_ND, labels, predictions_RN) for metric in metrics], axis=0))
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
        yield counts.reshape(rows, num_examples).T.astype(float, order="C")


def _scores(metric: Metric, counts_ND: np.ndarray, labels_N: np.ndarray, predictions_RN: np.ndarray) -> np.ndarray:
    """Of each run in each resample."""
    by_counts = _BY_COUNTS.get(metric)
    if metric in (f1, matthews) and not (np.isin(labels_N, (0, 1)).all() and np.isin(predictions_RN, (0, 1)).all()):
        by_counts = None
    if by_counts is not None:
        return by_counts(counts_ND, labels_N, predictions_RN)
    repeated = [np.repeat(np.arange(len(labels_N)), counts.astype(int)) for counts in counts_ND.T]
    return np.array([[metric(labels_N[picked], run[picked]) for picked in repeated] for run in predictions_RN])


def _accuracy(counts_ND: np.ndarray, labels_N: np.ndarray, predictions_RN: np.ndarray) -> np.ndarray:
    return (labels_N == predictions_RN) @ counts_ND / len(labels_N)


def _mean_score(counts_ND: np.ndarray, labels_N: np.ndarray, scores_RN: np.ndarray) -> np.ndarray:
    return scores_RN @ counts_ND / len(labels_N)


def _f1(counts_ND: np.ndarray, labels_N: np.ndarray, predictions_RN: np.ndarray) -> np.ndarray:
    both_RD, predicted_RD = (values @ counts_ND for values in (labels_N * predictions_RN, predictions_RN))
    return _ratio(2 * both_RD, labels_N @ counts_ND + predicted_RD)


def _pearson(counts_ND: np.ndarray, labels_N: np.ndarray, predictions_RN: np.ndarray) -> np.ndarray:
    # About their means, so that little is lost in the differences below.
    x_N, y_RN = labels_N - labels_N.mean(), predictions_RN - predictions_RN.mean(axis=1, keepdims=True)
    mean_x, square_x, mean_y, square_y, product = (
        values @ counts_ND / len(labels_N) for values in (x_N, x_N * x_N, y_RN, y_RN * y_RN, x_N * y_RN)
    )
    variances_RD = np.maximum(square_x - mean_x**2, 0) * np.maximum(square_y - mean_y**2, 0)
    return _ratio(product - mean_x * mean_y, np.sqrt(variances_RD))


def _spearman(counts_ND: np.ndarray, labels_N: np.ndarray, predictions_RN: np.ndarray) -> np.ndarray:
    x_ND = _ranks(counts_ND, labels_N)
    weighted_x_ND = counts_ND * x_ND
    variance_x_D = _sums(weighted_x_ND, x_ND)
    correlations = []
    for predictions_N in predictions_RN:
        y_ND = _ranks(counts_ND, predictions_N)
        variance_y_D = _sums(counts_ND * y_ND, y_ND)
        correlations.append(_ratio(_sums(weighted_x_ND, y_ND), np.sqrt(variance_x_D * variance_y_D)))
    return np.array(correlations)


def _sums(a_ND: np.ndarray, b_ND: np.ndarray) -> np.ndarray:
    """Of products, in each resample."""
    return np.einsum("nd,nd->d", a_ND, b_ND)


def _ranks(counts_ND: np.ndarray, values_N: np.ndarray) -> np.ndarray:
    """Rank of every example within each resample, about the middle one; equal values share their mean rank."""
    distinct, group_N = np.unique(values_N, return_inverse=True)
    order = np.argsort(group_N, kind="stable")
    size_GD = counts_ND[order]  # whole rows, which is why examples come first
    if len(distinct) < len(values_N):
        size_GD = np.add.reduceat(size_GD, np.searchsorted(group_N[order], np.arange(len(distinct))), axis=0)
    return (np.cumsum(size_GD, axis=0) - (size_GD + len(values_N)) / 2)[group_N]


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
