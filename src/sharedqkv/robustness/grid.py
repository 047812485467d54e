"""Fine-tuned models × conditions. Predictions are kept beside the models; finished cells are not run again."""

import itertools
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tqdm.auto import tqdm

from sharedqkv.robustness.conditions import Condition, Examples, conditions_for, load_examples
from sharedqkv.robustness.domains import DOMAINS
from sharedqkv.robustness.model_noise import NoisyRow, noise_in
from sharedqkv.robustness.noises import MODEL_NOISES
from sharedqkv.robustness.text_noise import TEXT_NOISES
from sharedqkv.robustness.tried import TriedModel, models_of
from sharedqkv.robustness.workers import Desk, Job, Prepared, Workers
from sharedqkv.tasks.outputs import InputTable, Outputs, table_outputs
from sharedqkv.tasks.registry import get_task
from sharedqkv.tasks.task import Task

_MODELS_AT_ONCE = 16
"""Models in memory together: noise is made and tokenised once for all of them."""
_UNKEPT = 32
"""Cells whose predictions may wait in memory to be written."""


@dataclass(frozen=True)
class Plan:
    noises: Sequence[str]
    severities: Sequence[int]
    seeds: Sequence[int]
    """Of the noise."""
    domains: Sequence[str]
    tasks: Sequence[str] = ()
    """All that the runs have, where empty."""
    limit: int | None = None
    """Examples of a set."""


@dataclass
class GridOutcome:
    ran: int = 0
    skipped: int = 0
    """Finished before."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Task and noise → why it is not tried."""
    broken: dict[str, str] = field(default_factory=dict)
    """Task and condition → its error."""


def run_grid(runs: Sequence[str], plan: Plan, data: str | None = None) -> GridOutcome:
    """`data` is a folder or None for the hub."""
    by_task = models_of(runs, plan.tasks)
    outcome = GridOutcome()
    grids = []
    for name, models in by_task.items():
        conditions, left_out = conditions_for(name, plan.noises, plan.severities, plan.seeds, plan.domains)
        outcome.left_out |= {f"{name}, {noise}": reason for noise, reason in left_out.items()}
        grids.append((get_task(name), models, conditions))
    total = sum(len(models) * len(conditions) for _, models, conditions in grids)
    with tqdm(total=total, unit="cell", dynamic_ncols=True, file=sys.stderr) as bar:
        for task, models, conditions in grids:
            loaded = _load(task, conditions, None if data is None else Path(data), plan.limit, outcome)
            bar.update(len(models) * (len(conditions) - len(loaded)))
            for group in _groups(models):
                _run_group(task, group, loaded, outcome, bar)
                for model in group:
                    model.unload()
    return outcome


def _load(
    task: Task, conditions: Sequence[Condition], data: Path | None, limit: int | None, outcome: GridOutcome
) -> dict[Condition, Examples]:
    """What can be read; what cannot is put with the broken."""
    clean = load_examples(conditions[0], task, data, limit)  # without it nothing else means anything
    loaded = {}
    for condition in conditions:
        if data is None and condition.is_domain and DOMAINS[condition.name].hub is None:
            outcome.left_out[f"{task.name}, {condition}"] = (
                "the hub has no copy that can be read; give a folder as data"
            )
            continue
        try:
            loaded[condition] = load_examples(condition, task, data, limit) if condition.is_domain else clean
        except (ValueError, OSError) as error:
            outcome.broken[f"{task.name}, {condition}"] = str(error)
    return loaded


def _groups(models: Sequence[TriedModel]) -> Iterator[list[TriedModel]]:
    waiting = iter(models)
    while group := list(itertools.islice(waiting, _MODELS_AT_ONCE)):
        yield group


def _run_group(
    task: Task, models: Sequence[TriedModel], loaded: Mapping[Condition, Examples], outcome: GridOutcome, bar: tqdm
) -> None:
    jobs = []
    for condition, clean in loaded.items():
        pending = [model for model in models if not model.finished(condition, clean)]
        outcome.skipped += len(models) - len(pending)
        bar.update(len(models) - len(pending))
        if pending:
            jobs.append(Job(task, condition, clean, pending))
    jobs.sort(key=lambda job: job.condition.name in TEXT_NOISES)  # these take time, in which others can be run
    with Workers(Desk(jobs)) as workers:
        _run_jobs(jobs, workers, outcome, bar)


def _run_jobs(jobs: Sequence[Job], workers: Workers, outcome: GridOutcome, bar: tqdm) -> None:
    prepared = workers.prepare(
        (number, severity) for number, job in enumerate(jobs) for severity in job.condition.text_severities
    )
    for model in dict.fromkeys(model for job in jobs for model in job.models):
        with suppress(ValueError, RuntimeError):  # told when it is tried
            model.predictor.model  # noqa: B018 - loaded while the first inputs are made
    unkept: deque[tuple[Job, TriedModel, Future[None]]] = deque()

    def settle(enough: int) -> None:
        while len(unkept) > enough or (unkept and unkept[0][2].done()):
            job, model, kept = unkept.popleft()
            try:
                kept.result()
                outcome.ran += 1
            except (ValueError, RuntimeError) as error:
                _tell(outcome, job, model, error)
            bar.update()

    for number, job in enumerate(jobs):
        bar.set_description(f"{job.task.name}, {job.condition}")
        texts = list(itertools.islice(prepared, len(job.condition.text_severities)))
        parts = texts * (len(job.condition.severities) // len(texts))
        for model_number, model in enumerate(job.models):
            try:
                outputs = _outputs(model, job.condition, parts)
            except (ValueError, RuntimeError) as error:  # outputs that are not finite, too little memory
                _tell(outcome, job, model, error)
                bar.update()
                continue
            unkept.append((job, model, workers.keep(number, model_number, [part.sealed for part in parts], outputs)))
            settle(enough=_UNKEPT)
    settle(enough=0)


def _tell(outcome: GridOutcome, job: Job, model: TriedModel, error: Exception) -> None:
    outcome.broken[f"{job.task.name}, {job.condition}"] = f"{model.cell.run}, {model.cell}: {error}"


def _outputs(model: TriedModel, condition: Condition, parts: Sequence[Prepared]) -> Outputs:
    """All severities share their batches."""
    predictor, kind = model.predictor, model.inputs_like
    table = InputTable.joined([part.tables[kind] for part in parts], predictor.tokenizer.pad_token_id)
    if condition.name not in MODEL_NOISES:
        return table_outputs(predictor.model, table, predictor.recipe)
    rows = [
        NoisyRow(key, severity)
        for severity, part in zip(condition.severities, parts, strict=True)
        for key in part.keys[kind]
    ]
    with noise_in(predictor.model, predictor.tokenizer, condition.name, condition.seed, rows) as on_batch:
        return table_outputs(predictor.model, table, predictor.recipe, on_batch)
