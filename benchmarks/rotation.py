"""What does the rotation in one pass gain in a training step with rotary positions, against the compiler's own?

Compiled steps of each variant with and without it, in turns, equality first; then the kernels that take the time.

    python benchmarks/rotation.py --output results/HARDWARE/DATE-rotation
"""

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch.profiler import ProfilerActivity, profile

from sharedqkv.accounting.bench.entrants import Entrant, choose_entrants
from sharedqkv.accounting.bench.equivalence import agreement, require
from sharedqkv.accounting.bench.passes import Batch, TrainStep, seconds_of
from sharedqkv.accounting.bench.settings import Settings
from sharedqkv.kernels import kernels_know, rotation
from sharedqkv.tasks.cells import write_json
from sharedqkv.training.run_folder import environment, now

ONE_PASS, BY_COMPILER = "one pass", "compiler"
WAYS: dict[str, Callable[..., bool]] = {ONE_PASS: kernels_know, BY_COMPILER: lambda *_: False}
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def way_taken(way: str) -> Any:
    """Compiled code asks which it is, and is kept for both."""
    return patch.object(rotation, "kernels_know", WAYS[way])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", default=["standard", "narrow", "grouped", "symmetric"])
    parser.add_argument("--size", default="medium")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--output", type=Path, help="folder for the record and the profile of the first variant")
    options = parser.parse_args()
    if DEVICE.type == "cpu":
        print("there is no GPU: both ways are the compiler's")
    shape = {"size": options.size, "length": options.length, "rows": options.rows}
    settings = Settings(**shape, positions="rotary", norm_placement="pre", bf16=True, compile=True)
    steps: dict[tuple[str, str], TrainStep] = {}
    for entrant in choose_entrants(options.variants, ["sdpa"], [], settings):
        steps |= checked_steps(entrant, settings)
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in steps}
    for number in range(options.rounds):
        for key, step in list(steps.items())[:: 1 if number % 2 == 0 else -1]:
            with way_taken(key[1]):
                step()
                seconds[key].append(seconds_of(step, options.steps))
    medians = {key: 1e3 * median(values) for key, values in seconds.items()}
    for name in dict.fromkeys(name for name, _ in steps):
        print(f"{name}: " + ", ".join(f"{way} {medians[name, way]:.2f} ms" for way in WAYS), flush=True)
    if options.output is not None:
        write_record(options, seconds)
        (options.output / "kernels.txt").write_text(kernels(next(iter(steps.values()))), encoding="utf-8")
    return 0


def checked_steps(entrant: Entrant, settings: Settings) -> dict[tuple[str, str], TrainStep]:
    """Both ways, after they gave the same loss, states and gradients."""
    made, results = {}, {}
    batch = Batch.random(entrant.config.vocab_size, settings.rows, settings.length, DEVICE, settings.seed)
    for way in WAYS:
        torch.manual_seed(settings.seed)
        with way_taken(way):
            made[entrant.name, way] = step = TrainStep(entrant.build().to(DEVICE), batch, settings.bf16, compiled=True)
            results[way] = step.results(without_dropout=False)
            for _ in range(settings.warmup):
                step()
    twin = dataclasses.replace(entrant, name=f"{entrant.name}, {ONE_PASS}", same_as=f"{entrant.name}, {BY_COMPILER}")
    found = agreement(twin, results[ONE_PASS], results[BY_COMPILER], "bfloat16")
    require(found)
    print(f"{found.entrant} equals {found.same_as} within {found.difference:.1e} ({found.result})", flush=True)
    return made


def kernels(step: TrainStep) -> str:
    on_gpu = DEVICE.type == "cuda"
    with way_taken(ONE_PASS), profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as seen:
        seconds_of(step, 3)
    sort_by = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    return seen.key_averages().table(sort_by=sort_by, row_limit=40, max_name_column_width=120)


def write_record(options: argparse.Namespace, seconds: dict[tuple[str, str], list[float]]) -> None:
    record = {
        "benchmark": "rotation",
        "date": now(),
        "options": {name: value for name, value in vars(options).items() if name != "output"},
        "step_s": {name: {way: seconds[name, way] for way in WAYS} for name, _ in seconds},
        "environment": environment(),
    }
    write_json(options.output / "rotation.json", record)


if __name__ == "__main__":
    raise SystemExit(main())
