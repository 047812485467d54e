"""What is compared: the predictions of fine-tuned models by seed, matched example by example, and their scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sharedqkv.evidence.resampling import plain_scores, resampled_scores
from sharedqkv.evidence.statistics import McNemar, mcnemar
from sharedqkv.tasks.metrics import Metric


@dataclass(frozen=True)
class Predictions:
    """What one fine-tuned model said of one split; the three lists are in the same order."""

    ids: Sequence[Any]
    labels: Sequence[Any]
    predictions: Sequence[Any]


@dataclass(frozen=True)
class TaskRuns:
    """All runs of one model on one task."""

    model: str
    task: str
    runs: Mapping[int, Mapping[int, Predictions]]
    """Pre-training seed → fine-tuning seed → predictions."""

    def flat(self) -> dict[tuple[int, int], Predictions]:
        """(pre-training seed, fine-tuning seed) → predictions, in the order of the seeds."""
        return {(p, f): self.runs[p][f] for p in sorted(self.runs) for f in sorted(self.runs[p])}


@dataclass(frozen=True)
class RunScores:
    """A model's R runs on a task: their scores, and the same on D resamples of the examples."""

    model: str
    task: str
    examples: int
    seeds: tuple[tuple[int, int], ...]
    """Of each run: (pre-training, fine-tuning)."""
    scores_R: np.ndarray
    draws_RD: np.ndarray

    @property
    def pretrainings(self) -> list[int]:
        """Their seeds."""
        return sorted({seed for seed, _ in self.seeds})


def score_runs(
    models: Sequence[TaskRuns], metrics: Sequence[Metric], draws: int = 1000, seed: int = 0
) -> list[RunScores]:
    """Score every run of the models, on all examples and on resamples that are the same for all runs."""
    labels, predictions = _aligned(models)
    predictions_RN = np.concatenate(predictions)
    scores_R = plain_scores(labels, predictions_RN, metrics)
    draws_RD = resampled_scores(labels, predictions_RN, metrics, draws, seed)
    cuts = np.cumsum([len(runs) for runs in predictions])[:-1]
    return [
        RunScores(model.model, model.task, len(labels), tuple(model.flat()), mine_R, mine_RD)
        for model, mine_R, mine_RD in zip(models, np.split(scores_R, cuts), np.split(draws_RD, cuts), strict=True)
    ]


def combine_scores(
    parts: Mapping[str, RunScores],
    combine: Callable[[Mapping[str, Any]], Any],
    name: str,
    same_examples: bool = False,
) -> RunScores:
    """One model's scores made of several, an average over tasks for example, as if it were a task of this name."""
    first = next(iter(parts.values()))
    for part, scores in parts.items():
        if (scores.model, scores.seeds) != (first.model, first.seeds):
            raise ValueError(
                f"{name}: {first.task} has {first.model} with seeds {first.seeds}, {part} has {scores.model} with "
                f"seeds {scores.seeds}; expected the same runs in every part"
            )
    return RunScores(
        model=first.model,
        task=name,
        examples=first.examples if same_examples else sum(scores.examples for scores in parts.values()),
        seeds=first.seeds,
        scores_R=combine({part: scores.scores_R for part, scores in parts.items()}),
        draws_RD=combine({part: scores.draws_RD for part, scores in parts.items()}),
    )


def mcnemar_by_pair(a: TaskRuns, b: TaskRuns) -> dict[tuple[tuple[int, int], tuple[int, int]], McNemar]:
    """McNemar's test of the first run of A with the first of B, the second with the second, and so on.

    Keys are the (pre-training, fine-tuning) seeds of both. A description of these runs: no verdict rests on it.
    """
    labels, (predictions_a, predictions_b) = _aligned([a, b])
    if any(values.dtype.kind == "f" and (values % 1 != 0).any() for values in (predictions_a, predictions_b)):
        raise ValueError(f"{a.task}: McNemar's test needs right and wrong answers, not numbers like a similarity")
    return {
        (seeds_a, seeds_b): mcnemar(labels == run_a, labels == run_b)
        for seeds_a, seeds_b, run_a, run_b in zip(a.flat(), b.flat(), predictions_a, predictions_b, strict=False)
    }


def _aligned(models: Sequence[TaskRuns]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Labels, and the predictions of each model's runs, all in the order of the ids."""
    first = models[0]
    for model in models:
        if model.task != first.task:
            raise ValueError(
                f"{first.model} was run on {first.task!r}, {model.model} on {model.task!r}: expected the same task"
            )
    by_model = [_sorted_runs(model) for model in models]
    ids, labels, _ = next(iter(by_model[0].values()))
    for where, (run_ids, run_labels, _) in (run for runs in by_model for run in runs.items()):
        if not np.array_equal(ids, run_ids):
            unmatched = set(ids.tolist()) ^ set(run_ids.tolist())
            raise ValueError(
                f"{where}: {len(unmatched)} example ids are not in every run, {min(unmatched, key=str)!r} for one; "
                "all runs must be scored on the same split"
            )
        if not np.array_equal(labels, run_labels):
            raise ValueError(f"{where}: labels differ from those of other runs; all must be scored on the same split")
    return labels, [np.stack([run[2] for run in runs.values()]) for runs in by_model]


def _sorted_runs(model: TaskRuns) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Ids, labels and predictions of every run in the order of the ids, by a name for messages."""
    if not model.flat():
        raise ValueError(f"{model.model} has no runs on {model.task}")
    return {
        name: _sorted_by_id(run, name)
        for seeds, run in model.flat().items()
        for name in [f"{model.model}, {model.task}, pre-training seed {seeds[0]}, fine-tuning seed {seeds[1]}"]
    }


def _sorted_by_id(run: Predictions, where: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ids, labels, predictions = np.asarray(run.ids), np.asarray(run.labels), np.asarray(run.predictions)
    if not len(ids) == len(labels) == len(predictions) > 0:
        raise ValueError(
            f"{where}: {len(ids)} ids, {len(labels)} labels, {len(predictions)} predictions; "
            "expected one of each for every example, and at least one example"
        )
    order = np.argsort(ids, kind="stable")
    if len(np.unique(ids)) < len(ids):
        raise ValueError(f"{where}: {len(ids) - len(np.unique(ids))} example ids occur more than once")
    return ids[order], labels[order], predictions[order]
