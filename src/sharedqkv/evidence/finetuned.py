"""Two fine-tuned models from their run folders: read, matched task by task, compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharedqkv.evidence.comparison import Comparison, compare_scores, correct_for_family
from sharedqkv.evidence.resampling import mean_score
from sharedqkv.evidence.runs import Predictions, RunScores, TaskRuns, combine_scores, mcnemar_by_pair, score_runs
from sharedqkv.evidence.statistics import McNemar
from sharedqkv.tasks.cells import kept_cells, predictions_file, read_predictions
from sharedqkv.tasks.glue import GlueTask
from sharedqkv.tasks.metrics import GLUE_METRICS, Metric, glue_average
from sharedqkv.tasks.registry import get_task
from sharedqkv.tasks.squad import question_scores
from sharedqkv.tasks.task import Record, Split, Task
from sharedqkv.training.run_folder import RunFolder


@dataclass(frozen=True)
class FinetunedModel:
    """One model: a fine-tuning run for each of its pre-training seeds."""

    name: str
    runs: Mapping[int, Path]
    seeds_known: bool
    """Whether the keys are the real pre-training seeds, or just a count."""

    def tasks(self) -> dict[str, Split]:
        """Score's name → its split, for what every run has."""
        by_run = []
        for run in self.runs.values():
            splits: dict[str, Split] = {}
            for cell in kept_cells(run):
                for place, split in (cell.record() or {"splits": {}})["splits"].items():
                    if split["scored_as"] is not None:
                        config, name = place.split("/")
                        splits[split["scored_as"]] = Split(config, name, scored_as=split["scored_as"])
            by_run.append(splits)
        return {name: split for name, split in by_run[0].items() if all(name in splits for splits in by_run)}

    def task_runs(self, split: Split) -> TaskRuns:
        assert split.scored_as is not None
        runs = {
            pretraining_seed: {
                cell.seed: predictions_of(read_predictions(predictions_file(run, split, cell.seed)), split.config)
                for cell in kept_cells(run)
                if cell.task == split.config
            }
            for pretraining_seed, run in self.runs.items()
        }
        return TaskRuns(self.name, split.scored_as, runs)


def read_models(runs_a: Sequence[str], runs_b: Sequence[str]) -> tuple[FinetunedModel, FinetunedModel]:
    """Each model's run folders, one for each pre-training seed; models are named by their variants, if these differ."""
    infos_a, infos_b = ([_info(run) for run in runs] for runs in (runs_a, runs_b))
    variants_a, variants_b = ({info["model"]["variant"] for info in infos} for infos in (infos_a, infos_b))
    if len(variants_a) == len(variants_b) == 1 and variants_a != variants_b:
        names = variants_a.pop(), variants_b.pop()
    else:
        names = ", ".join(runs_a), ", ".join(runs_b)
    return _model(names[0], runs_a, infos_a), _model(names[1], runs_b, infos_b)


def group_runs(runs: Sequence[str], separate: bool = False) -> list[FinetunedModel]:
    """Runs of one variant are one model with several pre-training seeds; `separate` makes each a model of its own."""
    if len({Path(run).resolve() for run in runs}) < len(runs):
        raise ValueError(f"{', '.join(runs)}: a run is given twice")
    if separate:
        return [_model(run, [run], [_info(run)]) for run in runs]
    by_variant: dict[str, list[str]] = {}
    for run in runs:
        by_variant.setdefault(_info(run)["model"]["variant"], []).append(run)
    return [_model(name, mine, [_info(run) for run in mine]) for name, mine in by_variant.items()]


def _info(run: str) -> dict[str, Any]:
    info = RunFolder(run).info()
    if info["kind"] != "finetune":
        raise ValueError(f"{run} is a run of kind {info['kind']}: give runs of `sharedqkv finetune`")
    return info


def _model(name: str, runs: Sequence[str], infos: Sequence[Mapping[str, Any]]) -> FinetunedModel:
    seeds = [info["model"]["pretraining_seed"] for info in infos]
    checkpoints = [info["model"]["sha256"] for info in infos]
    if len(set(checkpoints)) < len(checkpoints):
        raise ValueError(
            f"{', '.join(runs)}: two of these runs fine-tune the same checkpoint; "
            "several runs of a model must come from different pre-training seeds"
        )
    seeds_known = None not in seeds and len(set(seeds)) == len(seeds)
    keys = seeds if seeds_known else range(len(runs))
    return FinetunedModel(name, {seed: Path(run) for seed, run in zip(keys, runs, strict=True)}, seeds_known)


def predictions_of(records: Sequence[Record], task: str) -> Predictions:
    ids = [record["id"] for record in records]
    if isinstance(get_task(task), GlueTask):
        return Predictions(ids, [record["label"] for record in records], [record["prediction"] for record in records])
    # What counts of an answer is its F1; the label is not used.
    return Predictions(ids, [0] * len(ids), question_scores(records).f1.tolist())


@dataclass(frozen=True)
class Report:
    average: Comparison | None
    """Of GLUE, where both have all its tasks with the same seeds: the main comparison."""
    tasks: list[Comparison]
    """With Holm's correction over all of them."""
    mcnemar: dict[str, list[McNemar]]
    """Task → run by run: a description."""
    only_one_has: list[str]
    """Tasks that were left out."""


def compare_models(a: FinetunedModel, b: FinetunedModel, paired: bool | None = None, alpha: float = 0.05) -> Report:
    splits_a, splits_b = a.tasks(), b.tasks()
    common = [name for name in splits_a if name in splits_b]
    if not common:
        raise ValueError(
            f"no task in common: {a.name} has {', '.join(splits_a) or 'none'}, {b.name} {', '.join(splits_b) or 'none'}"
        )
    if paired is None:
        paired = may_be_paired(a, b)
    scores: dict[str, tuple[RunScores, RunScores]] = {}
    mcnemar: dict[str, list[McNemar]] = {}
    for name in common:
        runs_a, runs_b = a.task_runs(splits_a[name]), b.task_runs(splits_b[name])
        task = get_task(splits_a[name].config)
        scores_a, scores_b = score_runs([runs_a, runs_b], task_metrics(task))
        scores[name] = scores_a, scores_b
        if isinstance(task, GlueTask) and task.labels:
            mcnemar[name] = list(mcnemar_by_pair(runs_a, runs_b).values())
    comparisons = [compare_scores(*pair, paired=paired, alpha=alpha) for pair in scores.values()]
    return Report(
        average=_average(scores, paired, alpha),
        tasks=correct_for_family(comparisons),
        mcnemar=mcnemar,
        only_one_has=sorted(set(splits_a) ^ set(splits_b)),
    )


def may_be_paired(a: FinetunedModel, b: FinetunedModel) -> bool | None:
    """False where runs are only numbered, and so have nothing to do with each other; otherwise the seeds decide."""
    return False if len(a.runs) > 1 and not (a.seeds_known and b.seeds_known) else None


def task_metrics(task: Task) -> tuple[Metric, ...]:
    """Of SQuAD the mean: its answers are scored one by one."""
    return task.metrics if isinstance(task, GlueTask) else (mean_score,)


def _average(scores: Mapping[str, tuple[RunScores, RunScores]], paired: bool | None, alpha: float) -> Comparison | None:
    """Over GLUE's tasks; WNLI counts where it is there."""
    glue = {name: pair for name, pair in scores.items() if name in GLUE_METRICS}
    with_wnli = "wnli" in glue
    seeds = {(a.seeds, b.seeds) for a, b in glue.values()}
    if not set(GLUE_METRICS) - set(glue) <= {"wnli"} or len(seeds) > 1:
        return None
    name = "GLUE average" if with_wnli else "GLUE average without WNLI"
    a, b = (
        combine_scores(
            {task: pair[side] for task, pair in glue.items()}, lambda values: glue_average(values, with_wnli), name
        )
        for side in (0, 1)
    )
    return compare_scores(a, b, paired=paired, alpha=alpha)
