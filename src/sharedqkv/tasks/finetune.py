"""Fine-tune a model on tasks × seeds. Finished cells are skipped; a broken one does not stop the others."""

import gc
import hashlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sharedqkv.data.tokenizer import load_tokenizer
from sharedqkv.tasks.cells import (
    Cell,
    kept_cells,
    predictions_file,
    read_json,
    settings_sha256,
    write_json,
    write_predictions,
)
from sharedqkv.tasks.checkpoint import Checkpoint, find_checkpoint
from sharedqkv.tasks.glue import AX, GLUE
from sharedqkv.tasks.label_noise import with_label_noise
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.tasks.registry import get_task, task_names
from sharedqkv.tasks.sources import load_rows
from sharedqkv.tasks.summary import summary
from sharedqkv.tasks.task import Features, Split, Task
from sharedqkv.tasks.together import train_together
from sharedqkv.tasks.training import build_model, check_loss, outputs_of, train
from sharedqkv.training.run_folder import RunFolder, now


@dataclass
class Outcome:
    run: RunFolder
    records: list[dict[str, Any]] = field(default_factory=list)
    """Of the finished cells, in the order of tasks and seeds."""
    skipped: int = 0
    """How many of them were finished before."""
    broken: dict[str, str] = field(default_factory=dict)
    """Cell → its error."""


def parse_tasks(text: str) -> list[str]:
    """`cola,sst2`, with `glue` for all of its nine; `ax` is answered by MNLI's models and needs no training."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    known = [*task_names(), "ax", "glue"]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(f"--tasks: unknown {', '.join(unknown) or 'nothing'!r}; known: {', '.join(known)}")
    expanded = [part for name in names for part in (list(GLUE) if name == "glue" else [name])]
    if "ax" in expanded and "mnli" not in expanded:
        expanded.insert(expanded.index("ax"), "mnli")
    return list(dict.fromkeys(expanded))


def parse_seeds(text: str) -> list[int]:
    """A count (`5`: seeds 0 to 4) or a list (`0,1,7`; `7,` for one)."""
    try:
        seeds = [int(part) for part in text.split(",") if part.strip()] if "," in text else list(range(int(text)))
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise ValueError(f"--seeds {text!r}: expected a count like 5, or different seeds like 0,1,2")
    return seeds


class TaskData:
    """A task's splits, loaded and checked at once, tokenised when first needed."""

    def __init__(self, task: Task, recipe: FinetuneRecipe, data: Path | None, splits: Sequence[Split], tokenizer: Any):
        self.task = task
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.train = self._load(task.train, data)
        self.splits = {split: self._load(split, data) for split in splits}
        self.train_sha256 = _sha256(self.train)
        self.sha256 = {split: _sha256(examples) for split, examples in self.splits.items()}
        self._features: dict[Split, Features] = {}

    def _load(self, split: Split, data: Path | None) -> list[Any]:
        rows, where = load_rows(data, split)
        return self.task.examples(rows, where, labelled=split.scored_as is not None or split == self.task.train)

    @cached_property
    def train_features(self) -> Features:
        return self.task.features(self.train, self.tokenizer, self.recipe, training=True)

    def train_features_for(self, seed: int) -> Features:
        """The same for all seeds, but for noise on the labels."""
        if self.recipe.label_noise == 0:
            return self.train_features
        noisy = with_label_noise(self.task, self.train, self.recipe.label_noise, seed)
        return self.task.features(noisy, self.tokenizer, self.recipe, training=True)

    def features(self, split: Split) -> Features:
        if split not in self._features:
            self._features[split] = self.task.features(self.splits[split], self.tokenizer, self.recipe)
        return self._features[split]


def _sha256(examples: Sequence[Any]) -> str:
    return hashlib.sha256(repr(examples).encode()).hexdigest()


def finetune(
    model: str,
    recipes: Mapping[str, FinetuneRecipe],
    seeds: Sequence[int],
    output: str,
    data: str | None = None,
    submission: bool = False,
    with_ax: bool = False,
    keep_models: bool = False,
) -> Outcome:
    """`recipes` maps each task to how it is trained; `data` is a folder, or None for the hub.

    The run's own scores in run.json are of all its cells, those of earlier commands too.
    """
    checkpoint = find_checkpoint(model)
    _check(checkpoint, recipes)
    if data is not None and not Path(data).is_dir():
        raise FileNotFoundError(f"--data {data}: no such folder")
    tokenizer = load_tokenizer(str(checkpoint.folder))
    if len(tokenizer) > checkpoint.vocab_size:
        raise ValueError(
            f"{checkpoint.folder}: the tokenizer has {len(tokenizer)} tokens and the model {checkpoint.vocab_size}: "
            "they do not belong together"
        )
    run = RunFolder(output)
    _begin(run, checkpoint, data)
    if checkpoint.has_head:
        print(f"{model} has a fine-tuned head; it is not used: every seed starts with a new one", file=sys.stderr)
    outcome = Outcome(run)
    try:
        for name, recipe in recipes.items():
            task = get_task(name)
            splits = [*task.validation, *(task.test if submission else (AX,) if with_ax and name == "mnli" else ())]
            grid = _Grid(run.path, checkpoint, tokenizer, task, recipe, seeds, keep_models)
            grid.run_all(outcome, None if data is None else Path(data), splits)
    except BaseException as error:
        run.set_state("stopped", error=f"{type(error).__name__}: {error}", ended=now())
        raise
    run.set_state(
        "failed" if outcome.broken else "done",
        ended=now(),
        error="; ".join(f"{cell}: {error}" for cell, error in outcome.broken.items()) or None,
        scores=summary([record for cell in kept_cells(run.path) if (record := cell.record()) is not None]),
    )
    return outcome


def _check(checkpoint: Checkpoint, recipes: Mapping[str, FinetuneRecipe]) -> None:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or torch.cuda.device_count() > 1:
        raise ValueError(
            "fine-tuning uses one process and one GPU: start it without torchrun and choose a GPU with "
            "CUDA_VISIBLE_DEVICES=0; give other GPUs other tasks and another --output"
        )
    for module, package in (("sklearn", "scikit-learn"), ("scipy", "scipy")):
        if importlib.util.find_spec(module) is None:
            raise OSError(f"scoring needs `pip install {package}`")
    for name, recipe in recipes.items():
        if recipe.max_length > checkpoint.max_positions:
            raise ValueError(
                f"{name}: max_length {recipe.max_length} is more than the {checkpoint.max_positions} positions of "
                f"{checkpoint.parent}: give --max_length {checkpoint.max_positions} or less; longer texts are cut"
            )


def _begin(run: RunFolder, checkpoint: Checkpoint, data: str | None) -> None:
    if run.exists():
        info = run.info()
        if info["kind"] != "finetune":
            raise FileExistsError(f"{run.path} holds a run of kind {info['kind']}: choose another --output")
        if info["model"]["sha256"] != checkpoint.sha256:
            raise FileExistsError(
                f"{run.path} holds fine-tunings of another model ({info['parent']}): choose another --output"
            )
    else:
        run.create(
            {"kind": "finetune", "parent": checkpoint.parent, "model": checkpoint.describe(), "data": data or "hub"}
        )
    run.begin_sitting(None)


@dataclass(frozen=True)
class _Grid:
    """The cells of one task."""

    folder: Path
    checkpoint: Checkpoint
    tokenizer: Any
    task: Task
    recipe: FinetuneRecipe
    seeds: Sequence[int]
    keep_models: bool

    def run_all(self, outcome: Outcome, folder: Path | None, splits: Sequence[Split]) -> None:
        cells = [Cell(self.folder, self.task.name, seed) for seed in self.seeds]
        try:
            data = TaskData(self.task, self.recipe, folder, splits, self.tokenizer)
            recipe = self._search(data)
        except Exception as error:
            _tell(error, cells, outcome)
            return
        pending: list[Cell] = []
        records: dict[int, dict[str, Any]] = {}
        for cell in cells:
            if cell.finished(self._settings(data, recipe, cell.seed), data.sha256, self.keep_models):
                outcome.skipped += 1
                records[cell.seed] = cell.record() or {}
            else:
                pending.append(cell)
        for first in range(0, len(pending), recipe.seeds_at_once):
            records |= self._run_cells(pending[first : first + recipe.seeds_at_once], data, recipe, outcome)
        outcome.records += [records[cell.seed] for cell in cells if cell.seed in records]

    def _settings(self, data: TaskData, recipe: FinetuneRecipe, seed: int) -> dict[str, Any]:
        return {
            "task": self.task.name,
            "seed": seed,
            "model_sha256": self.checkpoint.sha256,
            "train_sha256": data.train_sha256,
            "recipe": recipe.to_dict(),
        }

    def _run_cells(
        self, cells: Sequence[Cell], data: TaskData, recipe: FinetuneRecipe, outcome: Outcome
    ) -> dict[int, dict[str, Any]]:
        """By seed, the records of those that did not break."""
        records = {}
        try:
            trained = self._train(cells, data, recipe)
        except Exception as error:
            _tell(error, cells, outcome)
            return {}
        for cell, model, training in zip(cells, *trained, strict=True):
            try:
                records[cell.seed] = self._answer(cell, model, training, data, recipe)
            except Exception as error:
                _tell(error, [cell], outcome)
        return records

    def _train(
        self, cells: Sequence[Cell], data: TaskData, recipe: FinetuneRecipe
    ) -> tuple[list[Any], list[dict[str, Any]]]:
        """A model for each cell, and figures about its training."""
        for cell in cells:
            if cell.record_file.exists():
                print(f"{cell}: run again, since settings, data or what is to be kept have changed", file=sys.stderr)
            cell.forget()
        seeds, pad = [cell.seed for cell in cells], self.tokenizer.pad_token_id
        models = [build_model(self.task, self.checkpoint.folder, recipe, seed) for seed in seeds]
        features = [data.train_features_for(seed) for seed in seeds]
        if len(cells) == 1:
            return models, [train(models[0], features[0], recipe, seeds[0], pad, str(cells[0]))]
        title = f"{self.task.name}, seeds {', '.join(map(str, seeds))}"
        return models, train_together(models, features, recipe, seeds, pad, title)

    def _answer(
        self, cell: Cell, model: Any, training: Mapping[str, Any], data: TaskData, recipe: FinetuneRecipe
    ) -> dict[str, Any]:
        check_loss(training["train_loss"])  # of models that were trained together some may have diverged
        settings = self._settings(data, recipe, cell.seed)
        splits = {}
        for split, examples in data.splits.items():
            features = data.features(split)
            outputs = outputs_of(model, features, recipe, self.tokenizer.pad_token_id)
            records = self.task.records(examples, features, outputs, recipe)
            splits[f"{split.config}/{split.name}"] = {
                "examples": len(examples),
                "truncated": features.truncated,
                "data_sha256": data.sha256[split],
                "predictions_sha256": write_predictions(predictions_file(self.folder, split, cell.seed), records),
                "scored_as": split.scored_as,
                "metrics": self.task.score(split, records) if split.scored_as else None,
            }
        if self.keep_models:
            cell.save_model(model, self.tokenizer)
        record = {
            **settings,
            "settings_sha256": settings_sha256(settings),
            "train": {"examples": len(data.train), "truncated": data.train_features.truncated, **training},
            "splits": splits,
            "ended": now(),
        }
        write_json(cell.record_file, record)
        cell.error_file.unlink(missing_ok=True)
        return record

    def _search(self, data: TaskData) -> FinetuneRecipe:
        """The best of the recipe's candidates on a tenth of train that they are not trained on."""
        candidates = self.recipe.candidates()
        if len(candidates) == 1:
            return candidates[0]
        held_back, rest = _tenth(data.train)
        file = self.folder / "search" / f"{self.task.name}.json"
        tried = read_json(file) or {}
        scores = []
        for number, recipe in enumerate(candidates, 1):
            settings = self._settings(data, recipe, self.seeds[0])
            key = settings_sha256(settings)
            if key not in tried:
                score = self._score_held_back(rest, held_back, recipe, f"{number} of {len(candidates)}")
                tried[key] = {"score": score, "held_back": len(held_back), **settings}
                write_json(file, tried)
            scores.append(tried[key]["score"])
        return candidates[int(np.argmax(scores))]

    def _score_held_back(self, rest: list[Any], held_back: list[Any], recipe: FinetuneRecipe, number: str) -> float:
        task, seed, pad = self.task, self.seeds[0], self.tokenizer.pad_token_id
        model = build_model(task, self.checkpoint.folder, recipe, seed)
        noisy = with_label_noise(task, rest, recipe.label_noise, seed)
        train_features = task.features(noisy, self.tokenizer, recipe, training=True)
        train(model, train_features, recipe, seed, pad, f"{task.name}, search {number}")
        features = task.features(held_back, self.tokenizer, recipe)
        records = task.records(held_back, features, outputs_of(model, features, recipe, pad), recipe)
        return task.score(task.validation[0], records)["score"]


def _tenth(examples: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """A tenth of the examples and the rest, the same in every run."""
    if len(examples) < 10:
        raise ValueError(f"search needs at least 10 training examples to hold a tenth back, not {len(examples)}")
    order = np.random.default_rng(0).permutation(len(examples))
    cut = len(examples) // 10
    return [examples[index] for index in order[:cut]], [examples[index] for index in order[cut:]]


def _tell(error: Exception, cells: Sequence[Cell], outcome: Outcome) -> None:
    outcome.broken |= {str(cell): _kept_error(cell, error) for cell in cells}
    gc.collect()
    torch.cuda.empty_cache()


def _kept_error(cell: Cell, error: Exception) -> str:
    cell.error_file.parent.mkdir(parents=True, exist_ok=True)
    cell.error_file.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{error}" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"
