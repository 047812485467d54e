"""Means, spreads and GLUE's averages over seeds."""

import statistics

import pytest

from sharedqkv.tasks.metrics import GLUE_METRICS
from sharedqkv.tasks.summary import summary


def records(names, seeds=(0, 1), score=lambda name, seed: 0.5 + 0.1 * seed):
    return [
        {
            "seed": seed,
            "splits": {
                f"{name}/validation": {"scored_as": name, "metrics": {"score": score(name, seed)}},
                f"{name}/test": {"scored_as": None, "metrics": None},
            },
        }
        for name in names
        for seed in seeds
    ]


def test_mean_and_standard_deviation_over_seeds():
    scores = summary(records(["cola"], seeds=(0, 1, 2)))
    spread = statistics.stdev([0.5, 0.6, 0.7])
    assert scores["cola"]["metrics"]["score"] == {"mean": pytest.approx(0.6), "std": pytest.approx(spread)}
    assert scores["cola"]["seeds"] == [0, 1, 2]


def test_one_seed_has_no_spread():
    assert summary(records(["cola"], seeds=(4,)))["cola"]["metrics"]["score"]["std"] is None


def test_averages_only_where_all_tasks_are_there():
    assert list(summary(records(["cola", "rte"]))) == ["cola", "rte"]
    without_wnli = [name for name in GLUE_METRICS if name != "wnli"]
    averages = [name for name in summary(records(without_wnli)) if name not in GLUE_METRICS]
    assert averages == ["GLUE average without WNLI", "nine-column mean (Courtois et al.)"]


def test_averages_are_of_seeds_with_all_tasks():
    def score(name, seed):
        return 0.9 if name == "wnli" else 0.5

    scores = summary([*records(GLUE_METRICS, (0, 1), score), *records(["cola"], (2,), score)])
    assert scores["GLUE average"]["seeds"] == [0, 1]
    assert scores["GLUE average"]["metrics"]["score"]["mean"] == pytest.approx((8 * 0.5 + 0.9) / 9)
    assert scores["GLUE average without WNLI"]["metrics"]["score"]["mean"] == pytest.approx(0.5)
