"""What was run, in this sitting and before: what is kept of it, and what follows from it."""

import dataclasses
import json
import math
import os
import shutil
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sharedqkv import schema
from sharedqkv.data.files import atomic_write
from sharedqkv.data.manifest import MANIFEST, REMEDY_MANIFEST
from sharedqkv.evidence.learning_rates import best_rate, broke_down, judged_loss
from sharedqkv.study.sittings.plan import Cell, Plan
from sharedqkv.study.sittings.whole_cell import FINETUNED
from sharedqkv.tasks.cells import Cell as TaskCell
from sharedqkv.tasks.cells import read_json, write_json
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.training.recipe import PretrainRecipe
from sharedqkv.training.run_folder import RunFolder, environment, now

_KEPT = ("run.json", "metrics.jsonl", "model/config.json")
"""Of a pre-training run; the rest is let go with the work folder."""
_KEPT_OF_TASKS = ("run.json", "cells", "predictions", "search", "robustness")
_MAY_DIFFER = ("data", "output", "workers")
_MAY_DIFFER_ON_TASKS = ("learning_rate", "search", "seeds_at_once")
"""What a search finds, and how many are trained side by side."""


class Records:
    def __init__(self, plan: Plan, folder: Path):
        self.plan = plan
        self.folder = folder

    def run(self, cell: Cell) -> RunFolder:
        return RunFolder(self.folder / self.plan.name(cell))

    def tasks_run(self, cell: Cell) -> RunFolder:
        """The fine-tuning of a cell's model."""
        return RunFolder(self.folder / self.plan.name(cell, "finetune"))

    def state(self, cell: Cell) -> str:
        if self.is_taken(cell):
            return "done"
        if not self.run(cell).exists():
            return "pending"
        state = self.run(cell).info()["state"]
        if state == "done" and self.plan.goes_on_to_tasks(cell) and not self.tasks_run(cell).exists():
            return "pending"
        return state

    def chosen_rate(self, variant: str) -> float | None:
        """None until all are tried; one alone need not be."""
        if self.plan.search.only_rate is not None:
            return self.plan.search.only_rate
        losses = self._search_losses(variant)
        if all(loss == math.inf for loss in losses.values()):
            raise ValueError(f"{variant}: training broke down with every rate: add lower ones to the plan's search")
        return best_rate(losses)

    def _search_losses(self, variant: str) -> dict[float, float | None]:
        search = self.plan.search
        return {
            rate: judged_loss(self.run(Cell(variant, search.position, tried_rate=rate)))
            for rate in search.learning_rates
        }

    def is_taken(self, cell: Cell) -> bool:
        """Whether it would check the rate that was chosen anyway: the run of that seed in pretrain/ is it already."""
        if cell.checked_rate is None:
            return False
        return cell.checked_rate == (self.plan.search.only_rate or best_rate(self._search_losses(cell.variant)))

    def recipe(self, cell: Cell, corpus: Path, output: Path) -> PretrainRecipe | None:
        """None as long as the learning rate is not known."""
        if cell.tried_rate is not None:
            return self.plan.recipe(cell, cell.tried_rate, corpus, output)
        chosen = self.chosen_rate(cell.variant)
        return None if chosen is None else self.plan.recipe(cell, cell.checked_rate or chosen, corpus, output)

    def task_recipes(self, cell: Cell) -> dict[str, FinetuneRecipe] | None:
        """An entrant's first cell searches the rates, the others take what it found; None until that is known."""
        entrant = (cell.variant, cell.position, cell.stage)
        first = next(c for c in self.plan.cells if (c.variant, c.position, c.stage) == entrant)
        if cell == first or not any(recipe.search for recipe in self.plan.tasks.values()):
            return self.plan.tasks
        if self.state(first) != "done":
            return None
        return {
            task: dataclasses.replace(found, seeds_at_once=self.plan.tasks[task].seeds_at_once)
            for task, found in self._kept_task_recipes(first).items()
        }

    def _kept_task_recipes(self, cell: Cell) -> dict[str, FinetuneRecipe]:
        seed, run = self.plan.study.finetune_seeds[0], self.tasks_run(cell).path
        kept = {task: TaskCell(run, task, seed).record() for task in self.plan.tasks}
        return {
            task: schema.build(FinetuneRecipe, record["recipe"], f"{run}: {task}")
            for task, record in kept.items()
            if record is not None
        }

    def is_settled(self, cell: Cell) -> bool:
        """Whether it need not be run: it is done, or it was tried and broke down. Other settings are an error."""
        if self.is_taken(cell):
            return True
        if self.state(cell) == "pending":
            return False
        recipe = self.recipe(cell, Path("corpus"), Path("run"))
        if recipe is not None:
            self._refuse_other_settings(self.run(cell), self.run(cell).info()["recipe"], recipe.to_dict(), _MAY_DIFFER)
        if self.plan.goes_on_to_tasks(cell):
            for task, before in self._kept_task_recipes(cell).items():
                asked = self.plan.tasks[task].to_dict()
                self._refuse_other_settings(self.tasks_run(cell), before.to_dict(), asked, _MAY_DIFFER_ON_TASKS)
        return self.state(cell) == "done" or broke_down(self.run(cell))

    def _refuse_other_settings(
        self, run: RunFolder, before: Mapping[str, Any], asked: Mapping[str, Any], may_differ: Iterable[str]
    ) -> None:
        before, asked = (json.loads(json.dumps(settings)) for settings in (before, asked))  # tuples as lists
        changed = [
            f"{key} was {before[key]!r}, is {value!r}"
            for key, value in asked.items()
            if key in before and key not in may_differ and before[key] != value
        ]
        if changed:
            raise ValueError(
                f"{run.path} was run with other settings: {'; '.join(changed)}. Choose another folder for the "
                "records, or the settings of before"
            )

    def keep(self, cell: Cell, made: Path) -> None:
        """Of a run that ended, however it did."""
        for name in _KEPT:
            _copy(made / name, self.run(cell).path / name)

    def keep_tasks(self, cell: Cell, made: Path) -> None:
        """Of a cell that ended well: one whose scores are there counts as done."""
        for name in _KEPT_OF_TASKS:
            _copy(made / FINETUNED / name, self.tasks_run(cell).path / name)

    def note(self, **line: Any) -> None:
        """A line for each cell of a sitting: a speed counts only where nothing ran beside it."""
        with open(self._notes, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def device_s(self, cell: Cell) -> float | None:
        """What its like took of the device at most, in the last round of cells side by side: earlier ones ran other
        code, or began with a compilation. Its like are those of its model, or all; a check is like a whole run."""
        stage = "pretrain" if cell.stage == "checks" else cell.stage
        told = [note for note in self._notes_of(stage) if not note["exit_code"]]
        last = told[-told[-1]["side_by_side"] :] if told else []
        model = f"{stage}/{self.plan.entrant(cell.variant, cell.position).slug}/"
        alike = [note for note in last if note["cell"].startswith(model)] or last
        # Older notes do not have it; in a round all end at about the same time.
        return max((note.get("device_s", note["seconds"] / note["side_by_side"]) for note in alike), default=None)

    def facts(self) -> dict[str, Any]:
        """For study.json, of how it was run: which rates were searched, how many runs shared the device."""
        search = self.plan.search
        return {
            **({"search": dataclasses.asdict(search)} if search.only_rate is None else {}),
            "side_by_side": max((note["side_by_side"] for note in self._notes_of("pretrain")), default=1),
        }

    def _notes_of(self, stage: str) -> list[dict[str, Any]]:
        lines = self._notes.read_text(encoding="utf-8").splitlines() if self._notes.exists() else []
        return [note for note in map(json.loads, lines) if note["cell"].startswith(f"{stage}/")]

    @property
    def _notes(self) -> Path:
        return self.folder / "sittings.jsonl"

    def keep_manifest(self, corpus: Path) -> None:
        if not (corpus / MANIFEST).exists():
            raise FileNotFoundError(f"{corpus} has no {MANIFEST}: make it with `sharedqkv prepare`")
        content, kept = _content(corpus / MANIFEST, REMEDY_MANIFEST), self.folder / "corpus_manifest.json"
        if not kept.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(kept) as file:
                file.write((corpus / MANIFEST).read_bytes())
            return
        before = _content(kept, "restore it, or choose another folder for the records")
        differing = sorted(key for key in content | before if content.get(key) != before.get(key))
        if differing:
            raise ValueError(
                f"{corpus} is not the text that {self.folder} was made with: its {MANIFEST} differs in "
                f"{', '.join(differing)}. Prepare the text as it was, or choose another folder for the records"
            )

    def write_study(self) -> None:
        """study.json, from which `sharedqkv report` starts."""
        study, robust = self.plan.study, self.plan.study.robust
        stages = ["pretrain", *(["finetune"] if self.plan.tasks else []), *(["robust"] if robust else [])]
        cells = {
            self.plan.name(cell, stage): {"state": self.state(cell), "seconds": None, "error": None}
            for stage in stages
            for cell in self.plan.cells
            if cell.stage == "pretrain"  # the report reads these as models' seeds
        }
        undone = any(cell["state"] != "done" for cell in cells.values())
        before = read_json(self.folder / "study.json") or {}
        content = {
            "name": study.name,
            "title": study.file.title,
            "description": study.file.description,
            "state": "running" if undone else "done",
            "study": dataclasses.asdict(study.file),
            "study_yaml": study.text,
            "command": ["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]],
            "environment": environment(),
            "started": before.get("started", now()),
            "ended": None if undone else now(),
            "baseline": study.entrants[0].name,
            "entrants": [dataclasses.asdict(entrant) for entrant in study.entrants],
            "tasks": list(self.plan.tasks),
            "noises": list(robust.noises) if robust else [],
            "severities": list(robust.severities) if robust else [],
            "noise_seeds": list(robust.seeds) if robust else [],
            "domains": list(robust.domains) if robust else [],
            "cells": cells,
            **self.facts(),
        }
        write_json(self.folder / "study.json", content)

    def pack(self, archive: Path, cells: Iterable[Cell]) -> None:
        """These cells and what is told of all; unpacked over the records of before, it completes them."""
        unfinished = archive.with_name(f".{archive.name}")
        told = [self.folder / name for name in ("study.json", "corpus_manifest.json")] + [self._notes]
        runs = [run.path for cell in cells for run in (self.run(cell), self.tasks_run(cell))]
        with tarfile.open(unfinished, "w:xz", preset=1) as tar:
            for path in (path for path in [*told, *runs] if path.exists()):
                tar.add(path, arcname=f"{self.folder.name}/{path.relative_to(self.folder)}")
        os.replace(unfinished, archive)


def _content(manifest: Path, remedy: str) -> dict[str, Any]:
    """Layout, tokenizer, hashes of the rows; not where the text lay, which is another folder on another machine."""
    try:
        told = json.loads(manifest.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{manifest} is damaged ({error}): {remedy}") from error
    if not isinstance(told, dict):
        raise ValueError(f"{manifest} is no manifest: {remedy}")
    return {key: value for key, value in told.items() if key not in ("settings", "sources")}


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.exists():
        shutil.copyfile(source, target)
