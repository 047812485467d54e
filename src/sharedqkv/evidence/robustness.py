"""What noise and other domains do to models: curves, losses, and claims with their verdicts.

A loss is told twice: absolute (clean − noisy), and relative to what can be lost, (clean − noisy) / (clean − chance), so
that a weak model does not look robust. All models are tried on the same corrupted examples, and every difference is
tested with the machinery of `comparison`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.integrate import trapezoid

from sharedqkv.evidence.comparison import Comparison, compare_scores, correct_for_family, interval_of_mean
from sharedqkv.evidence.finetuned import FinetunedModel, group_runs, may_be_paired, predictions_of, task_metrics
from sharedqkv.evidence.runs import Predictions, RunScores, TaskRuns, combine_scores, score_runs
from sharedqkv.robustness.conditions import CLEAN, Condition, conditions_for, counted
from sharedqkv.robustness.grid import Plan, cell_file
from sharedqkv.robustness.model_noise import MODEL_NOISES, STRENGTHS
from sharedqkv.robustness.text_noise import RATES
from sharedqkv.tasks.cells import kept_cells, read_json, read_predictions
from sharedqkv.tasks.registry import get_task

MARGIN = 0.01
"""An advantage of less than a point is no advantage: a claim whose interval ends below it does not hold."""
_ROOM = 0.05
"""A model whose clean score is less than this above chance has nothing to lose: no relative loss is given."""
EVERY_NOISE = "mean of all noises"
EVERY_DOMAIN = "mean of all domains"


@dataclass(frozen=True)
class Estimate:
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """A model under one noise. Scores are fractions."""

    task: str
    noise: str
    model: str
    severities: tuple[int, ...]
    """0 first: clean."""
    levels: tuple[float, ...]
    """Share of characters changed, or the noise's strength."""
    scores: tuple[Estimate, ...]
    chance: float
    absolute_loss: Estimate
    """Mean over severities."""
    relative_loss: Estimate | None
    """Mean over severities; None where the clean score is at chance."""
    area: Estimate
    """Under the curve of scores over levels, divided by the highest level: a mean score."""
    examples: int
    noise_seeds: int


@dataclass(frozen=True)
class DomainScore:
    task: str
    domain: str
    model: str
    score: Estimate
    in_domain: float
    chance: float
    relative_loss: Estimate | None
    examples: int
    counts: Mapping[str, int]
    """What must be said about the set, like rows left out."""


@dataclass(frozen=True)
class Claim:
    """That a model is better than the first one."""

    subject: str
    measure: str
    comparison: Comparison
    """Of what is better when higher."""

    @property
    def verdict(self) -> str:
        c = self.comparison
        if c.called:
            return "holds" if c.difference > 0 else "does not hold: the opposite does"
        if c.could_be_called and c.interval[1] < MARGIN:
            return f"does not hold: an advantage of {100 * MARGIN:g} point or more is ruled out"
        return f"cannot be told at this sample size: {_what_could_be_told(c)}"


def _what_could_be_told(c: Comparison) -> str:
    if not c.could_be_called:
        few = "with one model of each" if c.units_a == 1 else f"since p cannot fall below {c.smallest_p_corrected:.2g}"
        return f"no difference could be, {few}"
    if c.smallest_difference is None:
        return "a difference could be only after that of another claim"
    return f"a difference of {100 * c.smallest_difference:.1f} points would be, 4 times in 5"


@dataclass(frozen=True)
class Analysis:
    models: list[str]
    """The first is what the others are compared with."""
    curves: list[Curve]
    domains: list[DomainScore]
    claims: list[Claim]
    left_out: dict[str, str]
    """What was not compared, and why."""


def analyse(runs: Sequence[str], plan: Plan, alpha: float = 0.05, separate: bool = False) -> Analysis:
    """From what `run_grid` has left in the runs."""
    models = group_runs(runs, separate)
    analysis = Analysis([model.name for model in models], [], [], [], {})
    noise_scores: list[dict[str, RunScores]] = []
    domain_scores: list[dict[str, RunScores]] = []
    for task in _common_tasks(models, plan.tasks):
        reader = _Reader(models, task)
        conditions, _ = conditions_for(task, plan.noises, plan.severities, plan.seeds, plan.domains)
        clean = reader.scores([Condition(CLEAN)], 0)
        by_noise = {
            noise: [condition for condition in conditions if condition.name == noise]
            for noise in dict.fromkeys(condition.name for condition in conditions if condition.is_noise)
        }
        noise_scores += _noise(reader, by_noise, clean, alpha, analysis)
        names = [condition.name for condition in conditions if condition.is_domain]
        domain_scores += _domains(reader, names, clean, alpha, analysis)
    for scores, measure in (
        (noise_scores, "quality above chance that is kept under noise"),
        (domain_scores, "score"),
    ):
        analysis.claims.extend(_claims(scores, measure, models, alpha))
    return analysis


def _common_tasks(models: Sequence[FinetunedModel], wanted: Sequence[str]) -> list[str]:
    by_run = [{cell.task for cell in kept_cells(run)} for model in models for run in model.runs.values()]
    common = sorted(set.intersection(*by_run))
    if not common:
        raise ValueError("the runs have no task in common")
    return [task for task in common if not wanted or task in wanted]


class _Reader:
    """Reads the predictions of all models on one task."""

    def __init__(self, models: Sequence[FinetunedModel], task: str):
        self.models = models
        self.task = task

    def complete(self, condition: Condition) -> bool:
        return all(self.record(condition, run, seed) is not None for run, seed in self._cells())

    def record(self, condition: Condition, run: Any, seed: int) -> dict[str, Any] | None:
        return read_json(cell_file(run, self.task, condition, seed).with_suffix(".json"))

    def any_record(self, condition: Condition) -> dict[str, Any]:
        run, seed = self._cells()[0]
        record = self.record(condition, run, seed)
        assert record is not None
        return record

    def scores(self, conditions: Sequence[Condition], severity: int) -> dict[str, RunScores]:
        """Model → its scores; those of conditions that differ only in the noise's seed are averaged."""
        metrics = task_metrics(get_task(self.task))
        by_seed = [
            score_runs([self._runs(model, condition, severity) for model in self.models], metrics)
            for condition in conditions
        ]
        return {
            model.name: combine_scores(
                {str(number): scores[index] for number, scores in enumerate(by_seed)}, _mean, self.task, True
            )
            for index, model in enumerate(self.models)
        }

    def _cells(self) -> list[tuple[Any, int]]:
        runs = [run for model in self.models for run in model.runs.values()]
        return [(run, cell.seed) for run in runs for cell in kept_cells(run) if cell.task == self.task]

    def _runs(self, model: FinetunedModel, condition: Condition, severity: int) -> TaskRuns:
        runs = {
            pretraining_seed: {
                cell.seed: self._predictions(run, cell.seed, condition, severity)
                for cell in kept_cells(run)
                if cell.task == self.task
            }
            for pretraining_seed, run in model.runs.items()
        }
        return TaskRuns(model.name, self.task, runs)

    def _predictions(self, run: Any, seed: int, condition: Condition, severity: int) -> Predictions:
        every = read_predictions(cell_file(run, self.task, condition, seed))
        records = [record for record in every if record["severity"] == severity]
        return predictions_of(counted(condition, get_task(self.task), records), self.task)


def _mean(parts: Mapping[str, Any]) -> Any:
    return sum(parts.values()) / len(parts)


def _estimate(scores: RunScores, alpha: float) -> Estimate:
    low, high = interval_of_mean(scores, alpha)
    return Estimate(float(scores.scores_R.mean()), low, high)


def _noise(
    reader: _Reader,
    by_noise: Mapping[str, Sequence[Condition]],
    clean: Mapping[str, RunScores],
    alpha: float,
    analysis: Analysis,
) -> list[dict[str, RunScores]]:
    """Adds the curves; returns what is kept of the quality, for each noise and for their mean: model → scores."""
    chance = reader.any_record(Condition(CLEAN))["chance"]
    kept: dict[str, dict[str, RunScores]] = {}
    for noise, conditions in by_noise.items():
        if not all(map(reader.complete, conditions)):
            analysis.left_out[f"{reader.task}, {noise}"] = "not every model has been tried"
            continue
        severities = conditions[0].severities
        noisy = [reader.scores(conditions, severity) for severity in severities]
        subject = f"{reader.task}, {noise}"
        for name, clean_scores in clean.items():
            points = {"0": clean_scores, **{str(s): scores[name] for s, scores in zip(severities, noisy, strict=True)}}
            curve = _curve(reader.task, noise, points, chance, alpha, len(conditions))
            analysis.curves.append(curve)
            if curve.relative_loss is not None:
                share = combine_scores(points, _kept(chance), subject, same_examples=True)
                kept.setdefault(noise, {})[name] = share
            else:
                analysis.left_out[f"{reader.task}, {name}"] = (
                    f"no relative loss, since its clean score is less than {100 * _ROOM:g} points above chance"
                )
    whole = [scores for scores in kept.values() if len(scores) == len(clean)]
    return [*([_mean_over(whole, f"{reader.task}, {EVERY_NOISE}")] if len(whole) > 1 else []), *whole]


def _mean_over(parts: Sequence[Mapping[str, RunScores]], name: str) -> dict[str, RunScores]:
    """Model → the mean of its scores in all the parts."""
    return {
        model: combine_scores({str(i): scores[model] for i, scores in enumerate(parts)}, _mean, name, True)
        for model in parts[0]
    }


def _curve(
    task: str, noise: str, points: Mapping[str, RunScores], chance: float, alpha: float, noise_seeds: int
) -> Curve:
    clean = points["0"]
    severities = tuple(map(int, points))
    scale = (0.0, *(STRENGTHS if noise in MODEL_NOISES and noise != "token_dropout" else RATES))
    levels = tuple(scale[severity] for severity in severities)

    def estimate(function: Callable[[Mapping[str, Any]], Any]) -> Estimate:
        return _estimate(combine_scores(points, function, task, same_examples=True), alpha)

    kept = estimate(_kept(chance)) if _has_room(clean, chance) else None
    return Curve(
        task=task,
        noise=noise,
        model=clean.model,
        severities=severities,
        levels=levels,
        scores=tuple(_estimate(scores, alpha) for scores in points.values()),
        chance=chance,
        absolute_loss=estimate(lambda s: s["0"] - _mean(_without_clean(s))),
        relative_loss=kept and Estimate(1 - kept.mean, 1 - kept.high, 1 - kept.low),
        area=estimate(lambda s: trapezoid(np.stack(list(s.values())), levels, axis=0) / levels[-1]),
        examples=clean.examples,
        noise_seeds=noise_seeds,
    )


def _has_room(clean: RunScores, chance: float) -> bool:
    return bool(clean.scores_R.min() - chance >= _ROOM)


def _without_clean(scores: Mapping[str, Any]) -> dict[str, Any]:
    return {severity: values for severity, values in scores.items() if severity != "0"}


def _kept(chance: float) -> Callable[[Mapping[str, Any]], Any]:
    """Of the clean quality above chance, the share that is left; the mean over severities."""

    def share(scores: Mapping[str, Any]) -> Any:
        room = np.maximum(scores["0"] - chance, _ROOM / 5)  # a resample of the examples may lie near chance
        return (_mean(_without_clean(scores)) - chance) / room

    return share


def _domains(
    reader: _Reader, names: Sequence[str], clean: Mapping[str, RunScores], alpha: float, analysis: Analysis
) -> list[dict[str, RunScores]]:
    """Adds the table's rows; returns the scores on each domain and their mean: model → scores."""
    found = []
    clean_chance = reader.any_record(Condition(CLEAN))["chance"]
    for name in names:
        condition = Condition(name)
        if not reader.complete(condition):
            analysis.left_out[f"{reader.task}, {name}"] = "not every model has been tried"
            continue
        record = reader.any_record(condition)
        scores = reader.scores([condition], 0)
        for model, mine in scores.items():
            analysis.domains.append(
                DomainScore(
                    task=reader.task,
                    domain=name,
                    model=model,
                    score=_estimate(mine, alpha),
                    in_domain=float(clean[model].scores_R.mean()),
                    chance=record["chance"],
                    relative_loss=_relative_loss(clean[model], clean_chance, mine, record["chance"], alpha),
                    examples=mine.examples,
                    counts=record["counts"],
                )
            )
        subject = f"{reader.task} → {name}"
        found.append({model: combine_scores({"": mine}, _mean, subject) for model, mine in scores.items()})
    return [*([_mean_over(found, f"{reader.task} → {EVERY_DOMAIN}")] if len(found) > 1 else []), *found]


def _relative_loss(
    clean: RunScores, clean_chance: float, there: RunScores, chance: float, alpha: float
) -> Estimate | None:
    """1 − the share of the room above chance that is used there, over the same share at home."""
    if not _has_room(clean, clean_chance):
        return None

    def loss(scores: Mapping[str, Any]) -> Any:
        at_home = np.maximum(scores["clean"] - clean_chance, _ROOM / 5) / (1 - clean_chance)
        return 1 - (scores["there"] - chance) / (1 - chance) / at_home

    return _estimate(combine_scores({"clean": clean, "there": there}, loss, there.task, True), alpha)


def _claims(
    scores: Sequence[Mapping[str, RunScores]], measure: str, models: Sequence[FinetunedModel], alpha: float
) -> list[Claim]:
    """Every model against the first, with Holm's correction over all of them."""
    first, others = models[0], models[1:]
    pairs = [
        compare_scores(mine[other.name], mine[first.name], may_be_paired(other, first), alpha)
        for mine in scores
        for other in others
    ]
    return [Claim(comparison.task, measure, comparison) for comparison in correct_for_family(pairs)]
