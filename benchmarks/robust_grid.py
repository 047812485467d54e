"""What does a robustness grid cost beside the forward passes it contains?

Runs the whole grid of noises for one fine-tuned model of a run twice: as `sharedqkv robust` does it, and only the
forward passes, on inputs made beforehand. It should not exceed 1.3.

    python benchmarks/robust_grid.py RUN --task sst2 --data DATA --output results/HARDWARE/DATE-robust-grid
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from sharedqkv.robustness import grid
from sharedqkv.robustness.conditions import NOISES, SEVERITIES
from sharedqkv.robustness.grid import Plan, run_grid
from sharedqkv.tasks.cells import write_json
from sharedqkv.training.pretrain import quiet_transformers
from sharedqkv.training.run_folder import environment, now


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--task", required=True)
    parser.add_argument("--seed", default="0", help="of the fine-tuned model to use")
    parser.add_argument("--data", required=True)
    parser.add_argument("--examples", type=int)
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
        plan = Plan(NOISES, SEVERITIES, seeds=[0], domains=[], limit=options.examples)
        whole, passes = [], _Passes()
        for _ in range(options.repeats + 1):  # the first warms up
            shutil.rmtree(run / "robustness", ignore_errors=True)
            passes.clear()
            began = time.perf_counter()
            outcome = run_grid([str(run)], plan, options.data)
            whole.append(time.perf_counter() - began)
        bare = [passes.repeat() for _ in range(options.repeats + 1)]
    record = {
        "benchmark": "robust_grid",
        "date": now(),
        "task": options.task,
        "cells": outcome.ran,
        "inputs": passes.inputs,
        "whole_s": whole[1:],
        "forward_s": bare[1:],
        "ratio": min(whole[1:]) / min(bare[1:]),
        "environment": environment(),
    }
    write_json(options.output / "grid_cost.json", record)
    print(f"{outcome.ran} cells, {passes.inputs:,} inputs: {min(whole[1:]):.2f} s, forward {min(bare[1:]):.2f} s, "
          f"ratio {record['ratio']:.2f}")  # fmt: skip
    return 0


class _Passes:
    """Keeps the calls of the forward passes, to make them again alone."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.real = grid.outputs_of
        grid.outputs_of = self

    def __call__(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        return self.real(*arguments)

    def clear(self) -> None:
        self.calls = []

    @property
    def inputs(self) -> int:
        return sum(len(call[1].inputs) for call in self.calls)

    def repeat(self) -> float:
        began = time.perf_counter()
        for model, features, recipe, pad, *_ in self.calls:
            self.real(model, features, recipe, pad)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - began


if __name__ == "__main__":
    raise SystemExit(main())
