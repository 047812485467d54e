"""How long a cell may take: as long as its like took before, or by its FLOPs and the speed of this machine."""

import json
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch

from sharedqkv.accounting import forward_flops_per_token
from sharedqkv.data.manifest import Manifest
from sharedqkv.study.cells import Cell, cells_of, is_finished, likeness_of, record_of
from sharedqkv.study.definition import Study
from sharedqkv.tasks.recipe import FinetuneRecipe

_EFFICIENCY = 0.35
"""Share of a matrix product's speed that training reaches, all told; measured runs lie between 0.2 and 0.5."""
_SHORTEST_STEP_S = 0.02
"""However small the model, by Python and the start of kernels; 0.025 was measured on an H200."""
_TRAIN_ROWS = {
    "cola": 8_551, "sst2": 67_349, "mrpc": 3_668, "stsb": 5_749, "qqp": 363_846, "mnli": 392_702, "qnli": 104_743,
    "rte": 2_490, "wnli": 635, "squad": 87_599, "squad_v2": 130_319,
}  # fmt: skip
_TYPICAL_ROWS = 10_000
"""Of a task whose data are not looked at before they are needed."""


@dataclass(frozen=True)
class Guess:
    seconds: float | None
    """None where there is nothing to go by."""
    why: str = ""
    """There is none."""


class Estimator:
    """Of one study in one folder."""

    def __init__(self, study: Study, folder: Path):
        self.study = study
        self.folder = folder
        self.took: dict[str, list[float]] = {}
        """Likeness → seconds of the cells that were run."""
        for record in (record_of(cell, folder) for cell in cells_of(study)):
            if record.get("state") == "done" and "likeness" in record:
                self.took.setdefault(record["likeness"], []).append(record["seconds"])
        self._known_flops: dict[tuple[str, int, float], float] = {}

    def guess(self, cell: Cell) -> Guess:
        if self.took and (like := self.took.get(likeness_of(cell, self.study))):
            return Guess(float(np.mean(like)))
        if cell.stage == "pretrain":
            return self._pretraining(cell)
        if cell.stage == "finetune":
            return Guess(sum(self._finetuning_s(cell, task) for task in self.study.tasks) * self._seeds)
        if cell.stage == "robust":
            return Guess(sum(self._trying_s(cell, task) for task in self.study.tasks) * self._seeds)
        return Guess(None, "nothing like it has been run here")

    @property
    def _seeds(self) -> int:
        return len(self.study.finetune_seeds)

    def _pretraining(self, cell: Cell) -> Guess:
        assert cell.entrant is not None
        study = self.study
        recipe = study.recipe(cell.entrant, cell.seed or 0, Path("corpus"), Path("run"))
        tokens_per_step = recipe.rows_per_step * study.length
        if recipe.max_minutes is not None:
            return Guess(60 * recipe.max_minutes)
        if recipe.max_epochs is not None:
            if not is_finished(cell.needs[0], study, self.folder):
                return Guess(None, "max_epochs counts passes over the corpus, which is not prepared yet")
            steps = recipe.max_epochs * Manifest.read(self.folder / "corpus").train.rows / recipe.rows_per_step
        else:
            steps = recipe.max_steps or (recipe.max_tokens or 0) / tokens_per_step
        flops = 3 * tokens_per_step * self._forward_flops(cell, study.length, recipe.mlm_share)
        parts = recipe.rows_per_step / recipe.rows_per_device  # of a step, one after the other or on several devices
        return Guess(steps * parts / study.file.gpus_per_run * self._step_s(flops / parts))

    def _finetuning_s(self, cell: Cell, task: str) -> float:
        recipe = self.study.tasks[task]
        steps = self._rows(task) * recipe.epochs / recipe.batch_size
        return steps * self._step_s(3 * recipe.batch_size * self._input_flops(cell, recipe))

    def _trying_s(self, cell: Cell, task: str) -> float:
        assert self.study.robust is not None
        plan, world = self.study.robust, self.study.world
        inputs = world.validation if world else self._rows(task) / 10
        conditions = 1 + len(plan.noises) * len(plan.severities) * len(plan.seeds)
        tried = min(inputs, plan.limit or inputs) * conditions
        return tried * self._input_flops(cell, self.study.tasks[task]) / self._flops_per_s

    def _rows(self, task: str) -> int:
        return self.study.world.train if self.study.world else _TRAIN_ROWS.get(task, _TYPICAL_ROWS)

    def _input_flops(self, cell: Cell, recipe: FinetuneRecipe) -> float:
        """Forward, of an input half as long as the longest."""
        return recipe.max_length / 2 * self._forward_flops(cell, recipe.max_length, 0.0)

    def _forward_flops(self, cell: Cell, length: int, mlm_share: float) -> float:
        """Of a token. Counting takes a while, and variants of one size differ by less than the guess is off."""
        assert cell.entrant is not None
        key = (json.dumps(cell.entrant.model, sort_keys=True), length, mlm_share)
        if key not in self._known_flops:
            config = self.study.model_config(cell.entrant, length)
            self._known_flops[key] = forward_flops_per_token(config, length, mlm_share)
        return self._known_flops[key]

    def _step_s(self, flops: float) -> float:
        return max(_SHORTEST_STEP_S, flops / self._flops_per_s)

    @property
    def _flops_per_s(self) -> float:
        return _EFFICIENCY * _speed(self.study.file.threads)


@cache
def _speed(threads: int) -> float:
    """FLOP/s of a matrix product here."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    dtype, width = (torch.bfloat16, 4096) if device.type == "cuda" else (torch.float32, 512)
    a = torch.randn(width, width, dtype=dtype, device=device)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        (a @ a).sum().item()
        times.append(time.perf_counter() - began)
    torch.set_num_threads(before)
    return 2 * width**3 / min(times)
