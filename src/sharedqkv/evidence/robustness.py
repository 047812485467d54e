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
from sharedqkv.evidence.finetuned import FinetunedModel, may_be_paired, task_metrics
from sharedqkv.evidence.robustness_scores import ScoreReader, mean
from sharedqkv.evidence.runs import RunScores, combine_scores
from sharedqkv.robustness.conditions import CLEAN, Condition, conditions_for
from sharedqkv.robustness.grid import Plan
from sharedqkv.robustness.model_noise import STRENGTHS
from sharedqkv.robustness.noises import MODEL_NOISES
from sharedqkv.robustness.text_noise import RATES
from sharedqkv.tasks.cells import kept_cells
from sharedqkv.tasks.metrics import matthews, pearson, spearman
from sharedqkv.tasks.registry import get_task

MARGIN = 0.01
"""An advantage of less than a point is no advantage: a claim whose interval ends below it does not hold."""
_ROOM = 0.05
"""A model whose clean score is less than this above chance has nothing to lose: no relative loss is given."""
_CORRELATIONS = {matthews, pearson, spearman}
"""Metrics that may be negative."""
_KEPT = "quality above chance that is kept under noise"
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
    """That a model is better than its baseline."""

    subject: str
    measure: str
    comparison: Comparison
    """Of what is better when higher."""
    main: bool
    """Whether it speaks of all noises or all domains of a task, or of the only one."""

    @property
    def under_noise(self) -> bool:
        """Or else on other domains."""
        return self.measure == _KEPT

    @property
    def verdict(self) -> str:
        c = self.comparison
        if c.called:
            words = "holds" if c.difference > 0 else "does not hold: the opposite does"
            return f"{words}, but on other examples may not" if c.interval[0] <= 0 <= c.interval[1] else words
        if c.could_be_called and c.interval[1] < MARGIN:
            return f"does not hold: an advantage of {100 * MARGIN:g} point or more is ruled out"
        return f"cannot be told at this sample size: {_what_could_be_told(c)}"


def _what_could_be_told(c: Comparison) -> str:
    if not c.could_be_called:
        least = f"since p cannot fall below {c.smallest_p_corrected:.2g}"
        return f"no difference could be, {least if c.counts_seeds else 'with one model of each'}"
    if c.smallest_difference is None:
        return "a difference could be only after that of another claim"
    return f"a difference of {100 * c.smallest_difference:.1f} points would be, 4 times in 5"


@dataclass(frozen=True)
class Analysis:
    models: list[str]
    curves: list[Curve]
    domains: list[DomainScore]
    claims: list[Claim]
    left_out: dict[str, str]
    """What was not compared, and why."""
    alpha: float = 0.05
    """Intervals are at level 1 − alpha."""


def analyse(
    models: Sequence[FinetunedModel],
    plan: Plan,
    alpha: float = 0.05,
    untried: Mapping[str, str] | None = None,
    pairs: Sequence[Sequence[tuple[str, str]]] | None = None,
    awaited: Sequence[int] | None = None,
) -> Analysis:
    """From what `run_grid` has left in the runs; `untried` is what it did not run, with the reasons.

    `pairs` are a model and its baseline, those that are corrected together in a list of their own; without them every
    model is compared with the first. `awaited` is how many of each list cannot be compared yet, but are to be.
    """
    tasks, lacking = common_tasks(models, plan.tasks)
    left_out = dict.fromkeys(lacking, "not every run has it")
    analysis = Analysis([model.name for model in models], [], [], [], left_out, alpha)
    families: dict[tuple[str, bool], list[Mapping[str, RunScores]]] = {}
    for task in tasks:
        reader = ScoreReader(models, task, untried or {})
        conditions, excluded = conditions_for(task, plan.noises, plan.severities, plan.seeds, plan.domains)
        analysis.left_out.update({f"{task}, {name}": reason for name, reason in excluded.items()})
        clean = reader.scores([Condition(CLEAN)])[0]
        by_noise = {
            noise: [condition for condition in conditions if condition.name == noise]
            for noise in dict.fromkeys(condition.name for condition in conditions if condition.is_noise)
        }
        names = [condition.name for condition in conditions if condition.is_domain]
        for measure, scores, name in (
            (_KEPT, _noise(reader, by_noise, clean, alpha, analysis), f"{task}, {EVERY_NOISE}"),
            ("score", _domains(reader, names, clean, alpha, analysis), f"{task} → {EVERY_DOMAIN}"),
        ):
            several = len(scores) > 1
            main = [_mean_over(scores, name, same_examples=measure == _KEPT)] if several else scores
            families.setdefault((measure, True), []).extend(main)
            families.setdefault((measure, False), []).extend(scores if several else [])
    if pairs is None:
        pairs = [[(model.name, models[0].name) for model in models[1:]]]
    for (measure, is_main), family in families.items():
        for compared, to_come in zip(pairs, awaited or [0] * len(pairs), strict=True):
            _claim(family, measure, is_main, models, compared, analysis, to_come)
    return analysis


def common_tasks(models: Sequence[FinetunedModel], wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """The wanted tasks, or those that every run has, and what only some runs have."""
    by_run = {run: {cell.task for cell in kept_cells(run)} for model in models for run in model.runs.values()}
    for run, tasks in by_run.items():
        if missing := [task for task in wanted if task not in tasks]:
            has = ", ".join(sorted(tasks)) or "none"
            raise ValueError(f"{run} has no finished cell of {', '.join(missing)}; its tasks: {has}")
    common = set.intersection(*by_run.values())
    if not common:
        told = "; ".join(f"{run} has {', '.join(sorted(tasks)) or 'none'}" for run, tasks in by_run.items())
        raise ValueError(f"the runs have no task in common: {told}")
    return sorted(set(wanted) or common), sorted(set.union(*by_run.values()) - common)


def _estimate(scores: RunScores, alpha: float) -> Estimate:
    low, high = interval_of_mean(scores, alpha)
    return Estimate(float(scores.scores_R.mean()), low, high)


def _score_estimate(scores: RunScores, alpha: float) -> Estimate:
    """Of a task's metric, whose interval ends where the metric does."""
    estimate = _estimate(scores, alpha)
    least = -1.0 if _CORRELATIONS & set(task_metrics(get_task(scores.task))) else 0.0
    return Estimate(estimate.mean, max(estimate.low, least), min(estimate.high, 1.0))


def _noise(
    reader: ScoreReader,
    by_noise: Mapping[str, Sequence[Condition]],
    clean: Mapping[str, RunScores],
    alpha: float,
    analysis: Analysis,
) -> list[dict[str, RunScores]]:
    """Adds the curves; returns what is kept of the quality under each noise: model → scores."""
    chance = reader.any_record(Condition(CLEAN))["chance"]
    kept: dict[str, dict[str, RunScores]] = {}
    for noise, conditions in by_noise.items():
        subject = f"{reader.task}, {noise}"
        if reason := reader.lacks(conditions):
            analysis.left_out[subject] = reason
            continue
        noisy = reader.scores(conditions)
        for name, clean_scores in clean.items():
            points = {"0": clean_scores, **{str(severity): scores[name] for severity, scores in noisy.items()}}
            curve = _curve(reader.task, noise, points, chance, alpha, len(conditions))
            analysis.curves.append(curve)
            if curve.relative_loss is not None:
                share = combine_scores(points, _kept(chance), subject, same_examples=True)
                kept.setdefault(noise, {})[name] = share
            else:
                analysis.left_out[f"{reader.task}, {name}"] = (
                    f"no relative loss, since a clean score of it is less than {100 * _ROOM:g} points above chance"
                )
    return list(kept.values())


def _mean_over(parts: Sequence[Mapping[str, RunScores]], name: str, same_examples: bool) -> dict[str, RunScores]:
    """Model → the mean of its scores in all the parts."""
    return {
        model: combine_scores({str(i): scores[model] for i, scores in enumerate(parts)}, mean, name, same_examples)
        for model in parts[0]
    }


def _curve(
    task: str, noise: str, points: Mapping[str, RunScores], chance: float, alpha: float, noise_seeds: int
) -> Curve:
    clean = points["0"]
    severities = tuple(map(int, points))
    scale = (0.0, *(STRENGTHS if noise in MODEL_NOISES and noise != "token_dropout" else RATES))
    levels = tuple(scale[severity] for severity in severities)

    def combined(function: Callable[[Mapping[str, Any]], Any]) -> RunScores:
        return combine_scores(points, function, task, same_examples=True)

    kept = _estimate(combined(_kept(chance)), alpha) if _has_room(clean, chance) else None
    return Curve(
        task=task,
        noise=noise,
        model=clean.model,
        severities=severities,
        levels=levels,
        scores=tuple(_score_estimate(scores, alpha) for scores in points.values()),
        chance=chance,
        absolute_loss=_estimate(combined(lambda s: s["0"] - mean(_without_clean(s))), alpha),
        relative_loss=kept and Estimate(1 - kept.mean, 1 - kept.high, 1 - kept.low),
        area=_score_estimate(
            combined(lambda s: trapezoid(np.stack(list(s.values())), levels, axis=0) / levels[-1]), alpha
        ),
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
        return (mean(_without_clean(scores)) - chance) / room

    return share


def _domains(
    reader: ScoreReader, names: Sequence[str], clean: Mapping[str, RunScores], alpha: float, analysis: Analysis
) -> list[dict[str, RunScores]]:
    """Adds the table's rows; returns the scores on each domain: model → scores."""
    found = []
    clean_chance = reader.any_record(Condition(CLEAN))["chance"]
    for name in names:
        condition = Condition(name)
        if reason := reader.lacks([condition]):
            analysis.left_out[f"{reader.task}, {name}"] = reason
            continue
        record = reader.any_record(condition)
        scores = reader.scores([condition])[0]
        for model, mine in scores.items():
            analysis.domains.append(
                DomainScore(
                    task=reader.task,
                    domain=name,
                    model=model,
                    score=_score_estimate(mine, alpha),
                    in_domain=float(clean[model].scores_R.mean()),
                    chance=record["chance"],
                    relative_loss=_relative_loss(clean[model], clean_chance, mine, record["chance"], alpha),
                    examples=mine.examples,
                    counts=record["counts"],
                )
            )
        subject = f"{reader.task} → {name}"
        found.append({model: combine_scores({"": mine}, mean, subject) for model, mine in scores.items()})
    return found


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


def _claim(
    scores: Sequence[Mapping[str, RunScores]],
    measure: str,
    main: bool,
    models: Sequence[FinetunedModel],
    pairs: Sequence[tuple[str, str]],
    analysis: Analysis,
    awaited: int = 0,
) -> None:
    """Every model against its baseline, where both have scores, with Holm's correction over all of them."""
    by_name, made = {model.name: model for model in models}, []
    for mine in scores:
        for model, baseline in pairs:
            if model not in mine or baseline not in mine:
                continue
            paired = may_be_paired(by_name[model], by_name[baseline])
            try:
                made.append(compare_scores(mine[model], mine[baseline], paired, analysis.alpha))
            except ValueError as error:  # one seed against several
                analysis.left_out[f"{model} against {baseline}"] = str(error)
    corrected = correct_for_family(made, awaited * len(scores))
    analysis.claims.extend(Claim(c.task, measure, c, main) for c in corrected)
