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
        scores = [[_score(metric, counts_DN, labels, run) for metric in metrics] for run in predictions_RN]
        parts.append(np.mean(scores, axis=1))
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


def _score(metric: Metric, counts_DN: np.ndarray, labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    by_counts = _BY_COUNTS.get(metric)
    if metric in (f1, matthews) and not np.isin([labels, predictions], (0, 1)).all():
        by_counts = None
    if by_counts is not None:
        return by_counts(counts_DN, labels, predictions)
    repeated = (np.repeat(np.arange(len(labels)), counts.astype(int)) for counts in counts_DN)
    return np.array([metric(labels[picked], predictions[picked]) for picked in repeated])


def _accuracy(counts_DN: np.ndarray, labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    return counts_DN @ (labels == predictions) / len(labels)


def _mean_score(counts_DN: np.ndarray, labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    return counts_DN @ scores / len(scores)


def _f1(counts_DN: np.ndarray, labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    both, labelled, predicted = (counts_DN @ values for values in (labels * predictions, labels, predictions))
    return _ratio(2 * both, labelled + predicted)


def _pearson(counts_DN: np.ndarray, labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    x, y = labels - labels.mean(), predictions - predictions.mean()  # so that little is lost in the differences below
    sums_5D = (counts_DN @ np.stack([x, y, x * x, y * y, x * y], axis=1)).T
    mean_x, mean_y, square_x, square_y, product = sums_5D / len(labels)
    variances = np.maximum(square_x - mean_x**2, 0) * np.maximum(square_y - mean_y**2, 0)
    return _ratio(product - mean_x * mean_y, np.sqrt(variances))


def _spearman(counts_DN: np.ndarray, labels: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    x_DN, y_DN = (_ranks(counts_DN, values) - (len(values) + 1) / 2 for values in (labels, predictions))
    weighted_x_DN = counts_DN * x_DN
    covariance, variance_x = (np.einsum("dn,dn->d", weighted_x_DN, ranks_DN) for ranks_DN in (y_DN, x_DN))
    return _ratio(covariance, np.sqrt(variance_x * np.einsum("dn,dn->d", counts_DN * y_DN, y_DN)))


def _ranks(counts_DN: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Rank of every example within each resample; equal values share their mean rank."""
    distinct, group_N = np.unique(values, return_inverse=True)
    order = np.argsort(group_N, kind="stable")
    firsts = np.searchsorted(group_N[order], np.arange(len(distinct)))
    size_DG = np.add.reduceat(counts_DN[:, order], firsts, axis=1)
    return (np.cumsum(size_DG, axis=1) - (size_DG - 1) / 2)[:, group_N]


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
