import math
import warnings

import numpy as np
import pytest

from sharedqkv.tasks.metrics import (
    GLUE_METRICS,
    accuracy,
    courtois_mean,
    f1,
    glue_average,
    glue_metrics,
    matthews,
    names_by_task,
    pearson,
    spearman,
    task_mean,
)

METRICS = [accuracy, f1, matthews, pearson, spearman]


def written_out(name, labels, predictions):
    """The textbook definitions, by plain counting."""
    pairs = list(zip(labels, predictions, strict=True))
    if name == "spearman":
        labels, predictions = mean_ranks(labels), mean_ranks(predictions)
        name = "pearson"
    if name == "accuracy":
        return sum(a == b for a, b in pairs) / len(pairs)
    if name == "pearson":
        mean_x, mean_y = sum(labels) / len(labels), sum(predictions) / len(predictions)
        products = sum((x - mean_x) * (y - mean_y) for x, y in zip(labels, predictions, strict=True))
        squares = sum((x - mean_x) ** 2 for x in labels) * sum((y - mean_y) ** 2 for y in predictions)
        return products / math.sqrt(squares)
    tp, tn, fp, fn = (pairs.count(cell) for cell in ((1, 1), (0, 0), (0, 1), (1, 0)))
    if name == "f1":
        return 2 * tp / (2 * tp + fp + fn)
    return (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))


def mean_ranks(values):
    below = [sum(other < value for other in values) for value in values]
    return [count + (values.count(value) + 1) / 2 for count, value in zip(below, values, strict=True)]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
@pytest.mark.parametrize("seed", range(5))
def test_equals_the_textbook_definition(metric, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=60)
    predictions = np.where(rng.random(60) < 0.7, labels, 1 - labels)
    assert metric(labels, predictions) == pytest.approx(
        written_out(metric.__name__, labels.tolist(), predictions.tolist())
    )


@pytest.mark.parametrize("metric", [pearson, spearman], ids=lambda metric: metric.__name__)
def test_correlations_with_ties_and_any_scale(metric):
    rng = np.random.default_rng(0)
    labels = np.round(rng.random(80) * 25) / 5
    predictions = (labels + rng.normal(size=80)).astype(np.float32)
    assert metric(labels, predictions) == pytest.approx(
        written_out(metric.__name__, labels.tolist(), predictions.tolist())
    )
    assert metric(labels, 3 * predictions.astype(float) - 7) == pytest.approx(metric(labels, predictions.astype(float)))


def test_a_crafted_case():
    labels, predictions = [1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0, 0, 0]
    assert accuracy(labels, predictions) == 6 / 8
    assert f1(labels, predictions) == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert matthews(labels, predictions) == pytest.approx((2 * 4 - 1 * 1) / 15)
    assert f1([0, 0, 0, 1], [0, 0, 1, 1]) == pytest.approx(2 / 3), "class 1 is the positive one"
    assert f1([1, 1, 1, 0], [1, 1, 0, 0]) == pytest.approx(4 / 5)


@pytest.mark.parametrize("metric", [f1, matthews, pearson, spearman], ids=lambda metric: metric.__name__)
def test_undefined_is_zero_without_a_warning(metric):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metric([0, 1, 0, 1], [0, 0, 0, 0]) == 0.0
        assert metric([0, 0, 0, 0], [0, 0, 0, 0]) == 0.0
        assert metric([0, 0, 0, 0], [0, 1, 0, 1]) == 0.0


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
@pytest.mark.parametrize(
    ("labels", "predictions", "message"),
    [
        ([], [], "split is empty"),
        ([0, 1], [0], "one length"),
        ([0, 1], [[0.1, 0.9], [0.8, 0.2]], "not its logits"),
        ([0, 1], [0.0, float("nan")], "diverge"),
        ([-1, -1], [0, 1], "splits without labels"),
    ],
)
def test_unusable_input_is_an_error(metric, labels, predictions, message):
    with pytest.raises(ValueError, match=message):
        metric(labels, predictions)


def test_every_glue_task_has_its_official_metrics():
    names = {task: [metric.__name__ for metric in metrics] for task, metrics in GLUE_METRICS.items()}
    assert names == {
        "cola": ["matthews"],
        "stsb": ["pearson", "spearman"],
        **{task: ["accuracy", "f1"] for task in ("mrpc", "qqp")},
        **{task: ["accuracy"] for task in ("sst2", "mnli_matched", "mnli_mismatched", "qnli", "rte", "wnli")},
    }


def test_the_score_is_the_mean_of_the_metrics():
    values = glue_metrics("mrpc", [1, 1, 0, 0], [1, 0, 0, 0])
    assert values == pytest.approx({"accuracy": 3 / 4, "f1": 2 / 3, "score": 17 / 24})
    with pytest.raises(ValueError, match=r"unknown GLUE task 'mnli'; known: .*mnli_matched"):
        glue_metrics("mnli", [1], [1])


COLUMNS = ("mrpc", "cola", "mnli_matched", "qqp", "rte", "stsb", "qnli", "sst2", "mnli_mismatched")
PUBLISHED = [
    ((85.30, 44.35, 81.66, 88.86, 59.42, 87.30, 88.76, 90.92, 82.07), 78.74),
    ((78.36, 35.22, 78.66, 87.70, 53.43, 84.47, 86.90, 89.56, 79.05), 74.82),
    ((87.83, 46.91, 81.60, 88.89, 60.58, 86.88, 88.78, 90.78, 82.02), 79.36),
    ((81.04, 21.39, 77.16, 86.08, 54.87, 82.20, 85.45, 88.49, 77.76), 72.72),
    ((76.81, 10.29, 75.25, 85.13, 55.74, 77.83, 82.79, 86.90, 75.72), 69.61),
    ((82.34, 24.21, 76.37, 86.67, 56.25, 84.13, 84.97, 88.60, 76.89), 73.38),
]
"""Courtois et al. (2024): six models' columns and the mean they print."""


@pytest.mark.parametrize(("row", "mean"), PUBLISHED)
def test_nine_column_mean_is_the_published_one(row, mean):
    assert courtois_mean(dict(zip(COLUMNS, row, strict=True))) == pytest.approx(mean, abs=0.0051)


def test_tasks_count_once():
    assert names_by_task(["cola", "mnli_matched", "mnli_mismatched"]) == {
        "cola": ["cola"], "mnli": ["mnli_matched", "mnli_mismatched"],
    }  # fmt: skip
    assert task_mean({"cola": 0.2, "mnli_matched": 0.5, "mnli_mismatched": 0.7}) == pytest.approx(0.4)
    assert task_mean({"cola": np.array([0.2, 0.4]), "rte": np.array([0.4, 0.4])}) == pytest.approx([0.3, 0.4])


def test_glue_average_counts_mnli_once():
    scores = dict(zip(COLUMNS, PUBLISHED[0][0], strict=True))
    assert glue_average(scores, with_wnli=False) == pytest.approx(78.35, abs=0.0051)
    assert glue_average({**scores, "wnli": 0.0}) == pytest.approx(78.346875 * 8 / 9)
    by_seed = {task: np.array([score, score + 1]) for task, score in scores.items()}
    assert glue_average(by_seed, with_wnli=False) == pytest.approx([78.346875, 79.346875])


def test_an_average_of_some_tasks_is_an_error():
    with pytest.raises(ValueError, match="missing: wnli"):
        glue_average(dict.fromkeys(COLUMNS, 0.5))
    with pytest.raises(ValueError, match=r"missing: .*mnli_mismatched"):
        courtois_mean({"cola": 0.5})
