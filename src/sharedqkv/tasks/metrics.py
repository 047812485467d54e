"""GLUE's official metrics and its averages. Scores are fractions: 0.85, not 85.

Where a metric is undefined it is 0, as GLUE scores it, never NaN: Matthews and the correlations when predictions or
labels are constant, F1 when nobody says "positive". A model that has collapsed to one answer so gets 0.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Metric = Callable[[Any, Any], float]
"""(labels, predictions) → score; higher is better."""


def accuracy(labels: Any, predictions: Any) -> float:
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(*checked(labels, predictions)))


def f1(labels: Any, predictions: Any) -> float:
    """F1 of class 1."""
    from sklearn.metrics import f1_score

    return float(f1_score(*checked(labels, predictions), zero_division=0))


def matthews(labels: Any, predictions: Any) -> float:
    from sklearn.metrics import matthews_corrcoef

    labels, predictions = checked(labels, predictions)
    if _is_constant(labels) or _is_constant(predictions):
        return 0.0
    return float(matthews_corrcoef(labels, predictions))


def pearson(labels: Any, predictions: Any) -> float:
    from scipy.stats import pearsonr

    labels, predictions = checked(labels, predictions)
    if _is_constant(labels) or _is_constant(predictions):
        return 0.0
    return float(pearsonr(labels.astype(float), predictions.astype(float)).statistic)


def spearman(labels: Any, predictions: Any) -> float:
    from scipy.stats import spearmanr

    labels, predictions = checked(labels, predictions)
    if _is_constant(labels) or _is_constant(predictions):
        return 0.0
    return float(spearmanr(labels, predictions).statistic)


GLUE_METRICS: dict[str, tuple[Metric, ...]] = {
    "cola": (matthews,),
    "sst2": (accuracy,),
    "mrpc": (accuracy, f1),
    "stsb": (pearson, spearman),
    "qqp": (accuracy, f1),
    "mnli_matched": (accuracy,),
    "mnli_mismatched": (accuracy,),
    "qnli": (accuracy,),
    "rte": (accuracy,),
    "wnli": (accuracy,),
}
"""Task → its metrics; the task's score is their mean. MNLI's two validation splits are scored apart."""

_PLAIN_TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "qnli", "rte")


def glue_metrics(task: str, labels: Any, predictions: Any) -> dict[str, float]:
    """Every metric of the task by name (`accuracy`, `f1`, …), and their mean as `score`."""
    if task not in GLUE_METRICS:
        raise ValueError(f"unknown GLUE task {task!r}; known: {', '.join(GLUE_METRICS)}")
    return metric_scores(GLUE_METRICS[task], labels, predictions)


def metric_scores(metrics: Sequence[Metric], labels: Any, predictions: Any) -> dict[str, float]:
    """Every metric by its function's name, and their mean as `score`."""
    values = {metric.__name__: metric(labels, predictions) for metric in metrics}
    return {**values, "score": float(np.mean(list(values.values())))}


def glue_average(scores: Mapping[str, Any], with_wnli: bool = True) -> Any:
    """The benchmark's own average; `scores` maps tasks to scores or arrays of them (one entry a seed, say)."""
    tasks = (*_PLAIN_TASKS, "mnli_matched", "mnli_mismatched", *(["wnli"] if with_wnli else []))
    _require(scores, tasks)
    return task_mean({task: scores[task] for task in tasks})


def task_mean(scores: Mapping[str, Any]) -> Any:
    """Every task counts once, MNLI as the mean of its splits."""
    by_task = [sum(scores[name] for name in names) / len(names) for names in names_by_task(scores).values()]
    return sum(by_task) / len(by_task)


def names_by_task(names: Iterable[str]) -> dict[str, list[str]]:
    """Task → the names that its splits are scored as, of these: MNLI has two."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault("mnli" if name in ("mnli_matched", "mnli_mismatched") else name, []).append(name)
    return found


def courtois_mean(scores: Mapping[str, Any]) -> Any:
    """The mean of nine columns in Courtois et al. (2024): MNLI's two splits count as two tasks, WNLI is left out."""
    columns = (*_PLAIN_TASKS, "mnli_matched", "mnli_mismatched")
    _require(scores, columns)
    return sum(scores[column] for column in columns) / len(columns)


def _require(scores: Mapping[str, Any], tasks: tuple[str, ...]) -> None:
    missing = [task for task in tasks if task not in scores]
    if missing:
        raise ValueError(f"the average needs a score of every task; missing: {', '.join(missing)}")


def _is_constant(values: np.ndarray) -> bool:
    return bool((values == values[0]).all())


def checked(labels: Any, predictions: Any) -> tuple[np.ndarray, np.ndarray]:
    """As arrays, if they can be scored."""
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    if labels.ndim != 1 or labels.shape != predictions.shape:
        raise ValueError(
            f"labels of shape {labels.shape} and predictions of shape {predictions.shape}: "
            "expected two lists of one length, a prediction (not its logits) for every label"
        )
    if not len(labels):
        raise ValueError("no labels to score: the split is empty")
    if not (np.isfinite(labels).all() and np.isfinite(predictions).all()):
        raise ValueError("labels or predictions hold NaN or infinity: did the training diverge?")
    if (labels < 0).any():
        raise ValueError(
            f"label {labels.min()}: GLUE marks splits without labels so; score a split that has them, like validation"
        )
    return labels, predictions
