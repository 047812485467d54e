"""What do TF32, bf16, CUDA graphs and seeds as one gain in fine-tuning a small model, alone or with others on one GPU?

A random model learns two made-up classes of texts as long as SST-2's. One setting after the other is timed; with each,
so many processes train at the same time. The time is that of `sharedqkv finetune` for a seed, or for five as one model,
without loading and predicting, captures included. Without a GPU only the plain setting is timed.

    python benchmarks/finetune_speed.py --processes 4 --output results/HARDWARE/DATE-finetune-speed
"""

import argparse
import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from sharedqkv import SharedQKVForSequenceClassification
from sharedqkv.models.specs import config_from_spec
from sharedqkv.tasks.cells import write_json
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.tasks.task import Features
from sharedqkv.tasks.together import train_together
from sharedqkv.tasks.training import train
from sharedqkv.training.pretrain import quiet_transformers
from sharedqkv.training.run_folder import environment, now

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tf32": {"tf32": True},
    "bf16": {"bf16": True},
    "cuda_graphs": {"cuda_graphs": True},
    "tf32+cuda_graphs": {"tf32": True, "cuda_graphs": True},
    "five": {"seeds_at_once": 5},
    "five+tf32+cuda_graphs": {"seeds_at_once": 5, "tf32": True, "cuda_graphs": True},
    "five+bf16+cuda_graphs": {"seeds_at_once": 5, "bf16": True, "cuda_graphs": True},
}
PAD, CLS, SEP, FIRST_WORD = 0, 101, 102, 1000
WARM_UP = 64
"""Examples of a training before the one that is timed: the libraries start in it."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="medium")
    parser.add_argument("--variant", default="standard", help="or a spec, like shared:bias=true")
    parser.add_argument("--examples", type=int, default=20_000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--processes", type=int, default=1, help="that train side by side")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, metavar="NAME", help=f"of {', '.join(SETTINGS)}")
    parser.add_argument("--profile", action="store_true", help="say which kernels take the time, instead of timing")
    parser.add_argument("--output", type=Path, help="folder for the record")
    options = parser.parse_args()
    names = options.settings or (list(SETTINGS) if torch.cuda.is_available() else ["plain"])
    if options.profile:
        for name in names:
            print(name, profiled(options, SETTINGS[name]), sep="\n", flush=True)
        return 0
    inputs_per_second: dict[str, list[float]] = {}
    context, count = multiprocessing.get_context("spawn"), options.processes
    # They start once: that takes longer than a training.
    with context.Manager() as manager, ProcessPoolExecutor(count, context, initializer=quiet_transformers) as pool:
        for name in names:
            ready = manager.Barrier(count)  # so that each process gets one of the jobs
            jobs = [pool.submit(train_one, options, SETTINGS[name], seed, ready) for seed in range(count)]
            errors = [error for job in jobs if (error := job.exception()) is not None]
            if errors:
                raise min(errors, key=lambda error: isinstance(error, BrokenBarrierError))  # not one who waited for it
            inputs_per_second[name] = speeds = [job.result() for job in jobs]
            each = ", ".join(f"{speed:,.0f}" for speed in speeds)
            print(f"{name:>21}: {sum(speeds):,.0f} inputs/s ({each})", flush=True)
            if options.output is not None:
                write_record(options, inputs_per_second)
    return 0


def write_record(options: argparse.Namespace, inputs_per_second: dict[str, list[float]]) -> None:
    record = {
        "benchmark": "finetune_speed",
        "date": now(),
        "options": {name: value for name, value in vars(options).items() if name != "output"},
        "inputs_per_second": inputs_per_second,
        "environment": environment(),
    }
    write_json(options.output / "finetune_speed.json", record)


def train_one(options: argparse.Namespace, settings: dict[str, Any], seed: int, ready: Any) -> float:
    config = config_from_spec(options.variant, options.size, num_labels=2)
    recipe = FinetuneRecipe(epochs=1, batch_size=options.batch_size, **settings)
    models = [SharedQKVForSequenceClassification(config) for _ in range(recipe.seeds_at_once)]
    features = made_up(options.examples, config.vocab_size)

    def train_all(features: Features, title: str) -> float:
        if len(models) == 1:
            return train(models[0], features, recipe, seed, PAD, title)["inputs_per_second"]
        seeds = range(seed, seed + len(models))
        return train_together(models, [features] * len(models), recipe, seeds, PAD, title)[0]["inputs_per_second"]

    try:
        train_all(made_up(WARM_UP, config.vocab_size), "warm-up")
    except BaseException:
        ready.abort()  # the others would wait
        raise
    ready.wait()
    return train_all(features, f"seed {seed}")


def profiled(options: argparse.Namespace, settings: dict[str, Any]) -> str:
    kind = ProfilerActivity.CUDA if torch.cuda.is_available() else ProfilerActivity.CPU
    with profile(activities=[kind]) as recorded:
        train_one(options, settings, 0, multiprocessing.Barrier(1))
    sort_by = "self_device_time_total" if kind is ProfilerActivity.CUDA else "self_cpu_time_total"
    return recorded.key_averages().table(sort_by=sort_by, row_limit=40, max_name_column_width=90)


def made_up(count: int, vocab_size: int) -> Features:
    """Lengths like SST-2's: 16 tokens in the mean, few above 40, 64 at most."""
    chosen = random.Random(0)
    inputs = []
    for number in range(count):
        words = min(62, max(1, round(chosen.gammavariate(1.6, 8.75))))
        ids = [CLS, *(chosen.randrange(FIRST_WORD, vocab_size) for _ in range(words)), SEP]
        inputs.append({"input_ids": ids, "token_type_ids": [0] * len(ids), "labels": number % 2})
    return Features(inputs, truncated=0)


if __name__ == "__main__":
    raise SystemExit(main())
