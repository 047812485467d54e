"""What does a robustness grid cost beside the forward passes it contains?

Runs the whole grid of noises for one fine-tuned model of a run as `sharedqkv robust` does it, from reading the data
and starting processes to the last file; then only the forward passes, without noise in the model, on the same batches,
which lie on the device already. The ratio should not exceed 1.3.

    python benchmarks/robust_grid.py RUN --task sst2 --data DATA --output results/HARDWARE/DATE-robust-grid
"""

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from sharedqkv.robustness import grid, model_noise
from sharedqkv.robustness.conditions import NOISES, SEVERITIES
from sharedqkv.robustness.grid import Plan, run_grid
from sharedqkv.tasks.cells import write_json
from sharedqkv.tasks.outputs import device_batches
from sharedqkv.training.pretrain import quiet_transformers
from sharedqkv.training.run_folder import environment, now


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--task", required=True)
    parser.add_argument("--seed", default="0", help="of the fine-tuned model to use")
    parser.add_argument("--data", required=True)
    parser.add_argument("--examples", type=int)
    parser.add_argument("--noise-seeds", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", required=True, type=Path)
    options = parser.parse_args()
    quiet_transformers()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        for part in (f"models/{options.task}/{options.seed}", f"cells/{options.task}/{options.seed}.json"):
            (run / part).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (options.run / part).is_dir() else shutil.copy
            copy(options.run / part, run / part)
        shutil.copy(options.run / "run.json", run)
        plan = Plan(NOISES, SEVERITIES, seeds=range(options.noise_seeds), domains=[], limit=options.examples)
        whole, bare, passes = [], [], _Passes()
        for _ in range(options.repeats + 1):  # the first warms up
            shutil.rmtree(run / "robustness", ignore_errors=True)
            passes.clear()
            began = time.perf_counter()
            outcome = run_grid([str(run)], plan, options.data)
            ended = time.perf_counter()
            whole.append({"s": ended - began, "to_first_pass_s": passes.first - began, "in_passes_s": passes.seconds,
                          "after_last_pass_s": ended - passes.last})  # fmt: skip
            bare.append(passes.repeat())
    whole, bare = whole[1:], bare[1:]
    ratio = statistics.median(times["s"] for times in whole) / statistics.median(bare)
    record = {
        "benchmark": "robust_grid",
        "date": now(),
        "task": options.task,
        "noise_seeds": options.noise_seeds,
        "cells": outcome.ran,
        "inputs": passes.inputs,
        "whole": whole,
        "forward_s": bare,
        "ratio": ratio,
        "environment": environment(),
    }
    write_json(options.output / "grid_cost.json", record)
    print(f"{outcome.ran} cells, {passes.inputs:,} inputs: {whole}, forward {bare}, ratio {ratio:.2f}")
    return 0


class _Passes:
    """Keeps the calls of the forward passes, to make them again alone."""

    def __init__(self) -> None:
        self.real = grid.table_outputs
        grid.table_outputs = self
        self.clear()

    def clear(self) -> None:
        model_noise._pool.cache_clear()  # what one grid made must not speed up the next
        self.calls: list[tuple[Any, ...]] = []
        self.first = self.last = self.seconds = 0.0

    def __call__(self, *arguments: Any) -> Any:
        began = time.perf_counter()
        self.first = self.first or began
        self.calls.append(arguments)
        outputs = self.real(*arguments)
        self.last = time.perf_counter()
        self.seconds += self.last - began
        return outputs

    @property
    def inputs(self) -> int:
        return sum(len(call[1].lengths_R) for call in self.calls)

    @torch.no_grad()
    def repeat(self) -> float:
        seconds = 0.0
        for model, table, recipe, *_ in self.calls:
            batches = [batch for _, batch in device_batches(table, recipe, model.device)]
            _synchronize()
            began = time.perf_counter()
            for batch in batches:
                with torch.autocast(model.device.type, torch.bfloat16, enabled=recipe.bf16):
                    model(**batch)
            _synchronize()
            seconds += time.perf_counter() - began
        return seconds


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    raise SystemExit(main())
