"""Fine-tuned models × conditions. Predictions are kept beside the models; finished cells are not run again.

`<run>/robustness/<task>/<condition>/<noise seed>/<fine-tuning seed>.jsonl` holds the predictions under all severities,
`….json` beside it, written last, says what they are of.
"""

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm

from sharedqkv.data.files import sha256_of
from sharedqkv.robustness.conditions import (
    Condition,
    Examples,
    chance_of,
    conditions_for,
    load_examples,
    score,
    with_noise,
)
from sharedqkv.robustness.domains import DOMAINS
from sharedqkv.robustness.model_noise import MODEL_NOISES, NoisyRow, noise_in
from sharedqkv.tasks.cells import Cell, kept_cells, read_json, settings_sha256, write_json, write_predictions
from sharedqkv.tasks.predict import Predictor
from sharedqkv.tasks.registry import get_task
from sharedqkv.tasks.task import Features, Task
from sharedqkv.tasks.training import outputs_of
from sharedqkv.training.run_folder import RunFolder, now

_MODELS_AT_ONCE = 16
"""Models in memory together: noise is made and tokenised once for all of them."""


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


class TriedModel:
    """A fine-tuned model that a run kept."""

    def __init__(self, cell: Cell):
        record = cell.record()
        assert record is not None
        self.cell = cell
        self.sha256: str = record["settings_sha256"]
        tokenizer = sorted([*cell.model.glob("tokenizer*.json"), *cell.model.glob("vocab.txt")])
        limits = ("max_length", "stride", "max_question_length")
        self.inputs_like = (*map(sha256_of, tokenizer), *(record["recipe"][name] for name in limits))
        """Models for which these are equal take the same inputs."""

    @cached_property
    def predictor(self) -> Predictor:
        return Predictor(str(self.cell.run), self.cell.task, self.cell.seed)

    def unload(self) -> None:
        self.__dict__.pop("predictor", None)

    def settings(self, condition: Condition, loaded: Examples) -> dict[str, Any]:
        return {
            "model": self.sha256,
            "condition": condition.name,
            "noise_seed": condition.seed,
            "severities": list(condition.severities),
            "data_sha256": loaded.sha256,
        }


def cell_file(run: Path, task: str, condition: Condition, seed: int) -> Path:
    """Of the predictions; the record lies beside it as .json."""
    return run / "robustness" / task / condition.name / str(condition.seed) / f"{seed}.jsonl"


def models_of(runs: Sequence[str], tasks: Sequence[str]) -> dict[str, list[TriedModel]]:
    """Task → the kept models of all runs."""
    found: dict[str, list[TriedModel]] = {}
    for run in runs:
        info = RunFolder(run).info()
        if info["kind"] != "finetune":
            raise ValueError(f"{run} is a run of kind {info['kind']}: give runs of `sharedqkv finetune --keep-models`")
        kept = [cell for cell in kept_cells(Path(run)) if not tasks or cell.task in tasks]
        if not kept:
            raise ValueError(f"{run} has no finished cell of {', '.join(tasks) or 'any task'}")
        without = [str(cell) for cell in kept if not cell.model.is_dir()]
        if without:
            raise ValueError(
                f"{run} kept no model of {'; '.join(without)}: run its `sharedqkv finetune` again with --keep-models"
            )
        for cell in kept:
            found.setdefault(cell.task, []).append(TriedModel(cell))
    return found


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


@dataclass(frozen=True)
class _Job:
    """A condition, and the models that have not been tried under it."""

    condition: Condition
    loaded: Examples
    models: list[TriedModel]


def _run_group(
    task: Task, models: Sequence[TriedModel], loaded: Mapping[Condition, Examples], outcome: GridOutcome, bar: tqdm
) -> None:
    jobs = []
    for condition, clean in loaded.items():
        pending = [model for model in models if not _finished(model, condition, clean)]
        outcome.skipped += len(models) - len(pending)
        bar.update(len(models) - len(pending))
        if pending:
            jobs.append(_Job(condition, clean, pending))
    prepared = iter(_prepared(task, jobs))
    for job in jobs:
        bar.set_description(f"{task.name}, {job.condition}")
        made = {severity: next(prepared) for severity in job.condition.severities}
        examples = {severity: noisy for severity, (noisy, _) in made.items()}
        for model in job.models:
            features = {severity: by_kind[model.inputs_like] for severity, (_, by_kind) in made.items()}
            try:
                _run_cell(task, job.condition, model, job.loaded, examples, features)
                outcome.ran += 1
            except (ValueError, RuntimeError) as error:  # outputs that are not finite, too little memory
                outcome.broken[f"{task.name}, {job.condition}"] = f"{model.cell.run}, {model.cell}: {error}"
            bar.update()


def _prepared(task: Task, jobs: Sequence[_Job]) -> Iterable[Any]:
    """Noise and tokens of each job and severity. A GPU would wait for them: other processes make them ahead of it."""
    inputs = _Inputs(task, jobs)
    ahead = min(8, (os.cpu_count() or 1) - 1, len(inputs)) if torch.cuda.is_available() else 0
    for job in jobs:
        for model in job.models:
            model.predictor  # noqa: B018 - its tokenizer is needed in all processes
    return DataLoader(inputs, batch_size=None, collate_fn=_unchanged, num_workers=ahead)


def _unchanged(prepared: Any) -> Any:
    return prepared


class _Inputs(Dataset):
    def __init__(self, task: Task, jobs: Sequence[_Job]):
        self.task = task
        self.parts = [(job, severity) for job in jobs for severity in job.condition.severities]

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, index: int) -> tuple[list[Any], dict[tuple[Any, ...], Features]]:
        """The examples with their noise, and for each kind of inputs their features."""
        job, severity = self.parts[index]
        noisy = with_noise(job.loaded.examples, job.condition, severity)
        kinds = {model.inputs_like: model.predictor for model in job.models}
        return noisy, {
            kind: self.task.features(noisy, predictor.tokenizer, predictor.recipe) for kind, predictor in kinds.items()
        }


def _finished(model: TriedModel, condition: Condition, loaded: Examples) -> bool:
    file = cell_file(model.cell.run, model.cell.task, condition, model.cell.seed)
    record = read_json(file.with_suffix(".json"))
    settings = model.settings(condition, loaded)
    if record is None or record["settings_sha256"] != settings_sha256(settings) or not file.is_file():
        return False
    return bool(sha256_of(file) == record["predictions_sha256"])


def _run_cell(
    task: Task,
    condition: Condition,
    model: TriedModel,
    loaded: Examples,
    examples: dict[int, list[Any]],
    features: dict[int, Features],
) -> None:
    """All severities share their batches."""
    predictor = model.predictor
    outputs = _outputs(predictor, condition, loaded.examples, features)
    records, metrics, first = [], {}, 0
    for severity, parts in features.items():
        mine = outputs[first : first + len(parts.inputs)]
        first += len(parts.inputs)
        predicted = task.records(examples[severity], parts, mine, predictor.recipe)
        metrics[str(severity)] = score(condition, task, predicted)
        records += [{**record, "severity": severity} for record in predicted]
    settings = model.settings(condition, loaded)
    file = cell_file(model.cell.run, model.cell.task, condition, model.cell.seed)
    record = {
        **settings,
        "settings_sha256": settings_sha256(settings),
        "predictions_sha256": write_predictions(file, records),
        "examples": len(loaded.examples),
        "counts": loaded.counts,
        "truncated": {str(severity): parts.truncated for severity, parts in features.items()},
        "chance": chance_of(condition, task, records[: len(loaded.examples)]),
        "metrics": metrics,
        "ended": now(),
    }
    write_json(file.with_suffix(".json"), record)


def _outputs(
    predictor: Predictor, condition: Condition, examples: Sequence[Any], features: dict[int, Features]
) -> list[Any]:
    every = Features([row for parts in features.values() for row in parts.inputs], truncated=0)
    pad = predictor.tokenizer.pad_token_id
    if condition.name not in MODEL_NOISES:
        return outputs_of(predictor.model, every, predictor.recipe, pad)
    rows = [NoisyRow(key, severity) for severity, parts in features.items() for key in _keys(examples, parts)]
    with noise_in(predictor.model, predictor.tokenizer, condition.name, condition.seed, rows) as on_batch:
        return outputs_of(predictor.model, every, predictor.recipe, pad, on_batch)


def _keys(examples: Sequence[Any], features: Features) -> list[str]:
    """Of each input; an example that gives several, like SQuAD's windows, numbers them."""
    if features.details is None:
        return [str(example.id) for example in examples]
    counts = dict.fromkeys(features.details.question, 0)
    keys = []
    for question in features.details.question:
        keys.append(f"{examples[question].id}/{counts[question]}")
        counts[question] += 1
    return keys
