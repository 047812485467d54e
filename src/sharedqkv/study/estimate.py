"""How long a cell may take: as long as its like took before, or by its FLOPs and the speed of this machine."""

import time
from functools import cache
from pathlib import Path

import numpy as np
import torch

from sharedqkv.accounting import forward_flops_per_token
from sharedqkv.study.cells import Cell, cells_of, record_of
from sharedqkv.study.plan import Study

_EFFICIENCY = 0.35
"""Share of a matrix product's speed that training reaches, all told; measured runs lie between 0.2 and 0.5."""
_TYPICAL_ROWS = 10_000
"""Of a task whose data are not looked at before they are needed."""


def estimate_seconds(cell: Cell, study: Study, folder: Path) -> float | None:
    """None where there is nothing to go by."""
    like = [
        record["seconds"]
        for other in cells_of(study)
        if other.stage == cell.stage and (record := record_of(other, folder)).get("state") == "done"
    ]
    if like:
        return float(np.mean(like))
    flops = _flops(cell, study)
    return None if flops is None else flops / (_EFFICIENCY * _speed(study.file.threads))


def _flops(cell: Cell, study: Study) -> float | None:
    if cell.entrant is None:
        return None
    recipe = study.recipe(cell.entrant, cell.seed or 0, Path("corpus"), Path("run"))
    length = study.prepare.get("length", 128)
    config = recipe.model_config(study.prepare.get("train_vocab_size") or 30522, length)
    if cell.stage == "pretrain":
        tokens = recipe.max_tokens or (recipe.rows_per_step * length * recipe.max_steps if recipe.max_steps else None)
        if tokens is None:
            return None
        return 3 * tokens * forward_flops_per_token(config, length, recipe.mlm_share)
    rows = study.world.train if study.world else _TYPICAL_ROWS
    passes = sum(
        rows * recipe.epochs * 3 * (recipe.max_length / 2) * forward_flops_per_token(config, recipe.max_length, 0.0)
        for recipe in study.tasks.values()
    )
    if cell.stage == "finetune":
        return passes * len(study.finetune_seeds)
    assert study.robust is not None
    tried = study.world.validation if study.world else study.robust.limit or _TYPICAL_ROWS / 10
    conditions = 1 + len(study.robust.noises) * len(study.robust.severities) * len(study.robust.seeds)
    share = tried * conditions / (3 * rows * np.mean([recipe.epochs for recipe in study.tasks.values()]))
    return float(passes * share * len(study.finetune_seeds))


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
