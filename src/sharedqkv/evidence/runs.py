"""What is compared: the predictions of fine-tuned models by seed, matched example by example, and their scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sharedqkv.evidence.resampling import resampled_scores
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


def score_runs(
    a: TaskRuns, b: TaskRuns, metrics: Sequence[Metric], draws: int = 1000, seed: int = 0
) -> tuple[RunScores, RunScores]:
    """Score every run of both models, on all examples and on resamples that are the same for all runs."""
    labels, predictions_a, predictions_b = _aligned(a, b)
    predictions_RN = np.concatenate([predictions_a, predictions_b])
    scores_R = np.array([np.mean([metric(labels, run) for metric in metrics]) for run in predictions_RN])
    draws_RD = resampled_scores(labels, predictions_RN, metrics, draws, seed)
    cut = len(predictions_a)
    return (
        RunScores(a.model, a.task, len(labels), tuple(a.flat()), scores_R[:cut], draws_RD[:cut]),
        RunScores(b.model, b.task, len(labels), tuple(b.flat()), scores_R[cut:], draws_RD[cut:]),
    )


def average_scores(
    by_task: Mapping[str, RunScores], average: Callable[[Mapping[str, Any]], Any], name: str
) -> RunScores:
    """One model's average over tasks, `glue_average` for example, as if it were a task of this name."""
    first = next(iter(by_task.values()))
    for task, scores in by_task.items():
        if (scores.model, scores.seeds) != (first.model, first.seeds):
            raise ValueError(
                f"{name}: {first.task} has {first.model} with seeds {first.seeds}, {task} has {scores.model} with "
                f"seeds {scores.seeds}; an average needs the same runs in every task"
            )
    return RunScores(
        model=first.model,
        task=name,
        examples=sum(scores.examples for scores in by_task.values()),
        seeds=first.seeds,
        scores_R=average({task: scores.scores_R for task, scores in by_task.items()}),
        draws_RD=average({task: scores.draws_RD for task, scores in by_task.items()}),
    )


def mcnemar_by_pair(a: TaskRuns, b: TaskRuns) -> dict[tuple[tuple[int, int], tuple[int, int]], McNemar]:
    """McNemar's test of the first run of A with the first of B, the second with the second, and so on.

    Keys are the (pre-training, fine-tuning) seeds of both. A description of these runs: no verdict rests on it.
    """
    labels, predictions_a, predictions_b = _aligned(a, b)
    if any(values.dtype.kind == "f" and (values % 1 != 0).any() for values in (predictions_a, predictions_b)):
        raise ValueError(f"{a.task}: McNemar's test needs right and wrong answers, not numbers like a similarity")
    return {
        (seeds_a, seeds_b): mcnemar(labels == run_a, labels == run_b)
        for seeds_a, seeds_b, run_a, run_b in zip(a.flat(), b.flat(), predictions_a, predictions_b, strict=False)
    }


def _aligned(a: TaskRuns, b: TaskRuns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, and the predictions of A's and of B's runs, all in the order of the ids."""
    if a.task != b.task:
        raise ValueError(f"{a.model} was run on {a.task!r}, {b.model} on {b.task!r}: expected the same task")
    sorted_a, sorted_b = _sorted_runs(a), _sorted_runs(b)
    ids, labels, _ = next(iter(sorted_a.values()))
    for where, (run_ids, run_labels, _) in [*sorted_a.items(), *sorted_b.items()]:
        if not np.array_equal(ids, run_ids):
            unmatched = set(ids.tolist()) ^ set(run_ids.tolist())
            raise ValueError(
                f"{where}: {len(unmatched)} example ids are not in every run, {min(unmatched, key=str)!r} for one; "
                "all runs must be scored on the same split"
            )
        if not np.array_equal(labels, run_labels):
            raise ValueError(f"{where}: labels differ from those of other runs; all must be scored on the same split")
    predictions_a, predictions_b = (np.stack([run[2] for run in runs.values()]) for runs in (sorted_a, sorted_b))
    return labels, predictions_a, predictions_b


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
