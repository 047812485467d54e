"""What a study shows, computed from its runs: scores and their tests, losses, robustness, size and speed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from sharedqkv.accounting import ParameterCount, count_parameters, forward_flops_per_token
from sharedqkv.evidence.comparison import Comparison, compare_scores, correct_for_family
from sharedqkv.evidence.finetuned import FinetunedModel, task_metrics
from sharedqkv.evidence.report.bench import Timing
from sharedqkv.evidence.report.collect import Study
from sharedqkv.evidence.report.questions import Pair, against_baseline, awaited, main_and_others, questions
from sharedqkv.evidence.robustness import Analysis, analyse
from sharedqkv.evidence.runs import RunScores, combine_scores, score_runs
from sharedqkv.robustness.chance import chance
from sharedqkv.robustness.conditions import CLEAN, Condition
from sharedqkv.robustness.grid import Plan
from sharedqkv.robustness.tried import trial_record
from sharedqkv.tasks.cells import kept_cells, predictions_file, read_predictions
from sharedqkv.tasks.glue import GlueTask
from sharedqkv.tasks.metrics import GLUE_METRICS, glue_average, task_mean
from sharedqkv.tasks.registry import answers_are_spans, get_task
from sharedqkv.tasks.task import Split


@dataclass
class Quality:
    """Scores on the tasks, and how models compare.

    Pre-training seeds of two models are taken as unrelated, decided here once for all studies: few of them then reach
    a smaller p and give narrower intervals than as pairs (docs/statistics.md).
    """

    average: str = "average"
    """Name of the average, as if it were a task."""
    averaged: Sequence[str] = ()
    """What it is the average of."""
    scores: dict[str, dict[str, RunScores]] = field(default_factory=dict)
    """Task → model → scores; the average last."""
    chance: dict[str, float] = field(default_factory=dict)
    """Task → the score of the best constant answer."""
    by_task: dict[tuple[str, str], Comparison] = field(default_factory=dict)
    """(task, model) → against its baseline, with Holm's correction over all tasks and models with that baseline."""
    on_average: dict[Pair, Comparison] = field(default_factory=dict)
    """The main question comes first and stands alone; the others are corrected by baseline and positions."""
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def tasks(self) -> list[str]:
        return [task for task in self.scores if task != self.average]

    def averages(self) -> dict[str, RunScores]:
        return self.scores.get(self.average, {})


def measure_quality(study: Study) -> Quality:
    quality = Quality()
    for split, models in _models_by_score(study).items():
        assert split.scored_as is not None
        try:
            runs = [model.task_runs(split) for model in models]
            found = score_runs(runs, task_metrics(get_task(split.config)))
            quality.chance[split.scored_as] = _chance(models[0], split)
        except (ValueError, OSError) as error:
            quality.problems[split.scored_as] = study.without_path(str(error))
        else:
            quality.scores[split.scored_as] = {scores.model: scores for scores in found}
    _add_average(quality)
    _add_comparisons(quality, study)
    return quality


def _add_comparisons(quality: Quality, study: Study) -> None:
    for family in questions(study):
        found = _compare(quality, study, [quality.average], family)
        quality.on_average |= {pair: c for (_, pair), c in found.items()}
    for family in against_baseline(study):
        by_task = _compare(quality, study, quality.tasks, family)
        quality.by_task |= {(task, model): c for (task, (model, _)), c in by_task.items()}


def _models_by_score(study: Study) -> dict[Split, list[FinetunedModel]]:
    """Every scored split, with the entrants' runs that have it."""
    wanted = list(study.info["tasks"])
    found: dict[Split, list[FinetunedModel]] = {}
    for entrant in study.entrants:
        runs: dict[Split, dict[int, Path]] = {}
        for seed, path in study.finetuning.get(entrant.name, {}).items():
            for split in FinetunedModel(entrant.name, {seed: path}, True).tasks().values():
                runs.setdefault(split, {})[seed] = path
        for split, its_runs in runs.items():
            found.setdefault(split, []).append(FinetunedModel(entrant.name, its_runs, True))
    return dict(sorted(found.items(), key=lambda item: (_place(item[0].config, wanted), item[0].name)))


def _place(task: str, wanted: Sequence[str]) -> int:
    return wanted.index(task) if task in wanted else len(wanted)


def _chance(model: FinetunedModel, split: Split) -> float:
    run = next(iter(model.runs.values()))
    seed = next(cell.seed for cell in kept_cells(run) if cell.task == split.config)
    task = get_task(split.config)
    records = read_predictions(predictions_file(run, split, seed))
    classes = len(task.labels) if isinstance(task, GlueTask) else 0
    return chance(lambda constant: task.score(split, constant)["score"], records, classes)


def _add_average(quality: Quality) -> None:
    """Of the models that have all tasks; each with the runs that it has in all of them."""
    name, tasks, combine = _averaging(list(quality.scores))
    quality.averaged = tasks
    if len(tasks) < 2:
        quality.average = tasks[0] if tasks else name
        return
    quality.average = name
    averages = {}
    for model in quality.scores[tasks[0]]:
        parts = {task: quality.scores[task][model] for task in tasks if model in quality.scores[task]}
        common = sorted(set.intersection(*(set(scores.seeds) for scores in parts.values())))
        if len(parts) == len(tasks) and common:
            kept = {task: only(scores, common) for task, scores in parts.items()}
            averages[model] = combine_scores(kept, combine, name)
    quality.scores[name] = averages


def _averaging(tasks: Sequence[str]) -> tuple[str, list[str], Callable[[Mapping[str, Any]], Any]]:
    """Name, tasks and rule: GLUE's own where all of it is there, the mean of all tasks elsewhere, MNLI counted once.

    SQuAD and its kin are left out beside other tasks: the paper's claims on averages are about GLUE.
    """
    glue = [task for task in tasks if task in GLUE_METRICS]
    if set(GLUE_METRICS) - set(glue) <= {"wnli"}:
        with_wnli = "wnli" in glue
        name = "GLUE average" if with_wnli else "GLUE average without WNLI"
        return name, glue, lambda scores: glue_average(scores, with_wnli)
    spans = [task for task in tasks if answers_are_spans(task)]
    if spans and len(spans) < len(tasks):
        return f"average without {', '.join(spans)}", [task for task in tasks if task not in spans], task_mean
    return "average", list(tasks), task_mean


def only(scores: RunScores, seeds: Sequence[tuple[int, int]]) -> RunScores:
    """The runs of these seeds."""
    rows = [scores.seeds.index(pair) for pair in seeds]
    return RunScores(
        scores.model, scores.task, scores.examples, tuple(seeds), scores.scores_R[rows], scores.draws_RD[rows]
    )


def _compare(
    quality: Quality, study: Study, tasks: Sequence[str], family: Sequence[Pair]
) -> dict[tuple[str, Pair], Comparison]:
    """(task, pair) → the comparison, corrected as one family; pairs that cannot be compared are told."""
    made: dict[tuple[str, Pair], Comparison] = {}
    to_come = 0
    for task in tasks:
        scores = quality.scores.get(task, {})
        to_come += awaited(study, family, {model: len(mine.pretrainings) for model, mine in scores.items()})
        for model, other in family:
            if model in scores and other in scores:
                try:
                    paired = False if len(scores[model].pretrainings) > 1 else None
                    made[task, (model, other)] = compare_scores(scores[model], scores[other], paired)
                except ValueError as error:  # one seed against several
                    quality.problems[f"{model} against {other}"] = str(error)
    return dict(zip(made, correct_for_family(list(made.values()), to_come), strict=True))


def unit_scores(scores: RunScores) -> np.ndarray:
    """A score for each pre-training seed, or for each run where there is but one such seed: what ± is about."""
    if len(scores.pretrainings) == 1:
        return scores.scores_R
    return np.array([scores.scores_R[[s == seed for s, _ in scores.seeds]].mean() for seed in scores.pretrainings])


def compare_losses(study: Study) -> dict[Pair, Comparison]:
    """Final held-out losses. Positive is worse here. One seed against several is no comparison and left out.

    The main question is of two: whether the focus is worse than its baseline, and whether than the control of its size.
    """
    losses = {
        name: loss_scores(name, {run.seed: run.final_loss for run in runs}) for name, runs in study.pretraining.items()
    }
    found: dict[Pair, Comparison] = {}
    for family in questions(study, main_rivals=("narrow",)):
        made = {
            (a, b): compare_scores(losses[a], losses[b], paired=False)
            for a, b in family
            if a in losses and b in losses and (len(losses[a].seeds) == 1) == (len(losses[b].seeds) == 1)
        }
        to_come = awaited(study, family, {model: len(mine.seeds) for model, mine in losses.items()})
        found |= dict(zip(made, correct_for_family(list(made.values()), to_come), strict=True))
    return found


def loss_scores(model: str, by_seed: Mapping[int, float]) -> RunScores:
    """For the tests on seeds. Nothing is known of single examples: on resamples of them the losses stay the same."""
    losses_R = np.array(list(by_seed.values()))
    return RunScores(model, "held-out loss", 1, tuple((s, 0) for s in by_seed), losses_R, np.tile(losses_R, (2, 1)).T)


@dataclass(frozen=True)
class Robustness:
    analysis: Analysis | None
    problems: dict[str, str]


def measure_robustness(study: Study) -> Robustness:
    """Of the runs that were tried, on the tasks that all of these were tried on."""
    tried = {
        name: {seed: run for seed, run in runs.items() if (run / "robustness").is_dir()}
        for name, runs in study.finetuning.items()
    }
    # Seeds of two models are not paired here either.
    models = [FinetunedModel(name, runs, seeds_known=False) for name, runs in tried.items() if runs]
    runs = [run for model in models for run in model.runs.values()]
    tasks = [task for task in study.info["tasks"] if runs and all(_tried_clean(run, task) for run in runs)]
    problems = {
        f"{name}, seed {seed}": "not tried: it is left out here"
        for name, mine in study.finetuning.items()
        for seed in mine
        if runs and seed not in tried[name]
    }
    if not tasks:
        return Robustness(None, problems)
    plan = Plan(
        noises=study.info["noises"],
        severities=study.info["severities"],
        seeds=study.info["noise_seeds"],
        domains=study.info["domains"],
        tasks=tasks,
    )
    try:
        families = main_and_others(study)
        to_come = [awaited(study, family, {m.name: len(m.runs) for m in models}) for family in families]
        return Robustness(analyse(models, plan, pairs=families, awaited=to_come), problems)
    except (ValueError, OSError) as error:
        return Robustness(None, {**problems, "robustness": study.without_path(str(error))})


def _tried_clean(run: Path, task: str) -> bool:
    seeds = [cell.seed for cell in kept_cells(run) if cell.task == task]
    return bool(seeds) and all(trial_record(run, task, Condition(CLEAN), seed) is not None for seed in seeds)


@dataclass(frozen=True)
class Cost:
    parameters: ParameterCount
    flops_per_token: float
    """Forward, at this length of a row."""
    length: int
    """The corpus', or where it is not known all that there are positions for."""


def measure_costs(study: Study) -> dict[str, Cost]:
    """By model, for those that were pre-trained."""
    costs = {}
    for name, runs in study.pretraining.items():
        config = runs[0].config
        length = study.corpus.length if study.corpus else config.max_position_embeddings
        costs[name] = Cost(count_parameters(config), forward_flops_per_token(config, length), length)
    return costs


@dataclass(frozen=True)
class Saving:
    """A share of the baseline's time: the median over repeats, and their range."""

    median: float
    low: float
    high: float


def time_saved(timing: Timing, baseline: Timing) -> Saving:
    """In a training step. Models took turns in every repeat, so that repeats are paired."""
    shares = [1 - mine / theirs for mine, theirs in zip(timing.train_step_s, baseline.train_step_s, strict=False)]
    return Saving(median(shares), min(shares), max(shares))


@dataclass(frozen=True)
class Measures:
    study: Study
    quality: Quality
    losses: dict[Pair, Comparison]
    robustness: Robustness
    costs: dict[str, Cost]
    time_saved: dict[str, Saving]
    """By model, against its baseline."""


def measure(study: Study) -> Measures:
    return Measures(
        study=study,
        quality=measure_quality(study),
        losses=compare_losses(study),
        robustness=measure_robustness(study),
        costs=measure_costs(study),
        time_saved=_time_saved(study),
    )


def _time_saved(study: Study) -> dict[str, Saving]:
    timings = study.bench.entrants if study.bench else {}
    return {
        model: time_saved(timings[model], timings[baseline])
        for family in against_baseline(study)
        for model, baseline in family
        if model in timings and baseline in timings
    }
