"""Scores of many cells as mean and standard deviation over seeds, and GLUE's averages where all tasks are there."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sharedqkv.tasks.metrics import courtois_mean, glue_average

AVERAGES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "GLUE average": glue_average,
    "GLUE average without WNLI": lambda scores: glue_average(scores, with_wnli=False),
    "nine-column mean (Courtois et al.)": courtois_mean,
}


def scores_by_seed(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, dict[str, float]]]:
    """Score's name (`cola`, `mnli_matched`, …) → seed → metrics."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for record in records:
        for split in record["splits"].values():
            if split["scored_as"] is not None:
                found.setdefault(split["scored_as"], {})[record["seed"]] = split["metrics"]
    return found


def summary(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Name → {seeds, metrics: {metric: {mean, std}}}; std is None with a single seed. Averages stand at the end."""
    by_seed = scores_by_seed(records)
    found = {
        name: {
            "seeds": sorted(seeds),
            "metrics": {m: _mean_std([s[m] for s in seeds.values()]) for m in _metrics(seeds)},
        }
        for name, seeds in by_seed.items()
    }
    for name, average in AVERAGES.items():
        values = _averages(by_seed, average)
        if values:
            found[name] = {"seeds": sorted(values), "metrics": {"score": _mean_std(list(values.values()))}}
    return found


def _metrics(seeds: Mapping[int, Mapping[str, float]]) -> list[str]:
    return list(next(iter(seeds.values())))


def _averages(
    by_seed: Mapping[str, Mapping[int, Mapping[str, float]]], average: Callable[..., Any]
) -> dict[int, float]:
    """Seed → the average, for seeds with a score of every task."""
    values = {}
    for seed in sorted({seed for seeds in by_seed.values() for seed in seeds}):
        scores = {name: seeds[seed]["score"] for name, seeds in by_seed.items() if seed in seeds}
        try:
            values[seed] = float(average(scores))
        except ValueError:  # a task is missing
            continue
    return values


def _mean_std(values: Sequence[float]) -> dict[str, float | None]:
    return {"mean": float(np.mean(values)), "std": float(np.std(values, ddof=1)) if len(values) > 1 else None}
