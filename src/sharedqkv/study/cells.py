"""A study as a graph of cells. A cell is finished when it was run with the same settings on the same inputs.

Its hash covers its own settings and the hashes of the cells it builds on; `cells/<cell>.json` in the study's folder,
written when the cell is done, holds it.
"""

import dataclasses
import hashlib
import json
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from sharedqkv.data.manifest import MANIFEST
from sharedqkv.evidence.report.collect import Entrant
from sharedqkv.study.definition import Study
from sharedqkv.tasks.cells import read_json, write_json
from sharedqkv.training.run_folder import RunFolder

Stage = Literal["prepare", "pretrain", "finetune", "robust", "maps", "bench"]
_FORMAT = 1
"""Raised when a stage's results change for the same settings: finished cells are then run again."""
_OF_ENTRANT = ("seed", "attention_variant", "attention_options", "position_embedding_type")


@dataclass(frozen=True)
class Cell:
    stage: Stage
    entrant: Entrant | None = None
    seed: int | None = None
    """Of pre-training."""
    needs: tuple["Cell", ...] = ()

    @property
    def name(self) -> str:
        return self.stage if self.entrant is None else f"{self.stage}/{self.entrant.slug}/{self.seed}"

    def folder(self, study: Path) -> Path:
        return study / self.name

    def __hash__(self) -> int:
        return hash(self.name)


def cells_of(study: Study) -> list[Cell]:
    """In an order in which every cell comes after those it needs, and every entrant gets its first seed first."""
    prepare = Cell("prepare")
    cells = [prepare]
    trained: list[Cell] = []
    for seed in study.seeds:
        for entrant in study.entrants:
            pretrain = Cell("pretrain", entrant, seed, (prepare,))
            cells.append(pretrain)
            trained.append(pretrain)
            if study.tasks:
                finetune = Cell("finetune", entrant, seed, (pretrain,))
                cells.append(finetune)
                if study.robust is not None:
                    cells.append(Cell("robust", entrant, seed, (finetune,)))
    if study.file.sentence:
        cells.append(Cell("maps", needs=tuple(cell for cell in trained if cell.seed == study.seeds[0])))
    if study.bench is not None:
        cells.append(Cell("bench"))
    return cells


def settings_of(cell: Cell, study: Study) -> dict[str, Any]:
    """What decides about a cell's result, but for the cells it needs."""
    if cell.stage == "prepare":
        world = dataclasses.asdict(study.world) if study.world else None
        decisive = {name: value for name, value in study.prepare.items() if name != "processes"}
        sources = [*study.prepare.get("source", ()), *study.prepare.get("validation_source", ())]
        return {"world": world, "prepare": decisive, "files": _fingerprints(source.split("=")[0] for source in sources)}
    if cell.stage == "pretrain":
        assert cell.entrant is not None
        recipe = study.recipe(cell.entrant, cell.seed or 0, Path("corpus"), Path("run"))
        return {"recipe": recipe.to_dict(), "threads": study.file.threads, "gpus": study.file.gpus_per_run}
    if cell.stage == "finetune":
        recipes = {name: recipe.to_dict() for name, recipe in study.tasks.items()}
        return {
            "recipes": recipes,
            "seeds": study.finetune_seeds,
            "data": study.task_data,
            "files": _fingerprints([study.task_data] if study.task_data else []),
            "keep_models": study.robust is not None,
        }
    if cell.stage == "robust":
        assert study.robust is not None
        return {"plan": dataclasses.asdict(study.robust), "data": study.task_data}
    if cell.stage == "maps":
        return {"sentence": study.file.sentence}
    assert study.bench is not None
    entrants = [dataclasses.asdict(entrant) for entrant in study.entrants]
    return {
        "bench": dataclasses.asdict(study.bench),
        "timed": "as trained",  # before there was this entry: by SDPA and not compiled, whatever the recipe
        "entrants": entrants,
        "pretrain": study.pretrain,
        "vocab_size": study.prepare.get("train_vocab_size"),
        "threads": study.file.threads,
    }


def _fingerprints(paths: Iterable[str]) -> list[tuple[str, int, int]]:
    """Size and time of change of local files: text that was changed is read again."""
    files = [
        file for path in paths for file in ([Path(path)] if Path(path).is_file() else sorted(Path(path).rglob("*")))
    ]
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]


def hash_of(cell: Cell, study: Study) -> str:
    content = {
        "format": _FORMAT,
        "cell": cell.name,
        "settings": settings_of(cell, study),
        "needs": [hash_of(needed, study) for needed in cell.needs],
    }
    return _digest(content)


def likeness_of(cell: Cell, study: Study) -> str:
    """The same for cells that take about as long: all settings and the device, but for variant and seed."""
    settings = settings_of(cell, study)
    if "recipe" in settings:
        settings["recipe"] = {name: value for name, value in settings["recipe"].items() if name not in _OF_ENTRANT}
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{platform.machine()}, {os.cpu_count()}"
    content = {
        "stage": cell.stage,
        "settings": settings,
        "device": device,
        "needs": sorted({likeness_of(needed, study) for needed in cell.needs}),
    }
    return _digest(content)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=list).encode()).hexdigest()


def record_file(cell: Cell, folder: Path) -> Path:
    return folder / "cells" / f"{cell.name}.json"


def record_of(cell: Cell, folder: Path) -> dict[str, Any]:
    """Empty for a cell that was never run."""
    return read_json(record_file(cell, folder)) or {}


def is_finished(cell: Cell, study: Study, folder: Path) -> bool:
    """Whether it, and all it needs, was run with these settings and what it left is still there."""
    record = record_of(cell, folder)
    if record.get("state") != "done" or record.get("hash") != hash_of(cell, study):
        return False
    return _left_by(cell, folder).exists() and all(is_finished(needed, study, folder) for needed in cell.needs)


def _left_by(cell: Cell, folder: Path) -> Path:
    if cell.stage == "pretrain":
        return RunFolder(cell.folder(folder)).model
    if cell.stage == "finetune":
        return RunFolder(cell.folder(folder)).info_file
    if cell.stage == "robust":
        return cell.needs[0].folder(folder) / "robustness"
    return {
        "prepare": folder / "corpus" / MANIFEST,
        "maps": folder / "maps.json",
        "bench": folder / "bench.json",
    }[cell.stage]


def write_record(cell: Cell, study: Study, folder: Path, **outcome: Any) -> None:
    record = {"hash": hash_of(cell, study), "likeness": likeness_of(cell, study), **outcome}
    write_json(record_file(cell, folder), record)
