"""Fine-tune a model on GLUE or SQuAD with several seeds: `sharedqkv finetune --model PATH --tasks glue --output RUN`.

Finished cells (a task with a seed) are skipped when the command is started again; a broken one does not stop the
others. Any field of a recipe can be given as --field value and then holds for all tasks.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from sharedqkv import schema
from sharedqkv.tasks.recipe import FinetuneRecipe, load_recipes
from sharedqkv.tasks.registry import TASKS

if TYPE_CHECKING:
    from sharedqkv.tasks.finetune import Outcome

TAKES_FIELDS = True  # all other --field value arguments are the recipe's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "sharedqkv finetune --model PATH --tasks TASKS --output RUN [options] [--field value ...]"
    parser.epilog = (
        "fields of a recipe (with GLUE's defaults; SQuAD: learning_rate 3e-5, epochs 2, max_length 384, batch_size 32 "
        f"and for 2.0 48):\n{schema.describe(FinetuneRecipe)}"
    )
    parser.add_argument("--model", required=True, help="a pre-training run, a model's folder or a hub id")
    parser.add_argument(
        "--tasks", required=True, help=f"a list like cola,sst2 of: {', '.join(TASKS)}, ax, glue, or a plugin's"
    )
    parser.add_argument("--seeds", default="5", help="a count or a list like 0,1,7 (default: 5)")
    parser.add_argument("--data", help="local folder: Parquet, JSONL, GLUE's TSV or SQuAD's JSON (default: the hub)")
    parser.add_argument("--recipe", type=Path, help="YAML file with fields of a recipe")
    parser.add_argument("--output", required=True, help="run folder; an existing one is completed")
    parser.add_argument("--submission", action="store_true", help="predict GLUE's test sets and write a zip a seed")
    parser.add_argument("--keep-models", action="store_true", help="keep every fine-tuned model, for predict")


def run(options: argparse.Namespace) -> int:
    from sharedqkv.tasks.finetune import finetune, parse_seeds, parse_tasks
    from sharedqkv.tasks.submission import write_submission
    from sharedqkv.training.pretrain import quiet_transformers

    tasks = parse_tasks(options.tasks)
    seeds = parse_seeds(options.seeds)
    trained = [task for task in tasks if task != "ax"]
    recipes = load_recipes(trained, options.recipe, schema.parse_overrides(FinetuneRecipe, options.fields))
    quiet_transformers()
    try:
        outcome = finetune(
            options.model,
            recipes,
            seeds,
            options.output,
            data=options.data,
            submission=options.submission,
            with_ax="ax" in tasks,
            keep_models=options.keep_models,
        )
    except KeyboardInterrupt:
        print(f"Finished cells are kept in {options.output}: the same command goes on from there.", file=sys.stderr)
        raise
    print_outcome(outcome)
    if options.submission:
        for seed in seeds:
            path, missing = write_submission(outcome.run.path, seed, trained)
            print(f"{path}{f': incomplete, without {chr(44).join(missing)}' if missing else ''}")
    return 1 if outcome.broken else 0


def print_outcome(outcome: "Outcome") -> None:
    from sharedqkv.tasks.summary import summary

    console = Console(width=max(Console().width, 100), highlight=False)
    if outcome.records:
        console.print(_table(summary(outcome.records)))
    for line in _truncations(outcome.records):
        console.print(line)
    done = len(outcome.records)
    console.print(f"{done} cells in {outcome.run.path}, {outcome.skipped} of them finished before", soft_wrap=True)
    by_error: dict[str, list[str]] = {}
    for cell, error in outcome.broken.items():
        by_error.setdefault(error, []).append(cell)
    for error, cells in by_error.items():
        print(f"broken: {'; '.join(cells)}: {error}", file=sys.stderr)
    if outcome.broken:
        print("The same command runs the broken cells again; their tracebacks are in cells/.", file=sys.stderr)


def _table(scores: dict[str, dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="mean ± standard deviation over seeds, in points")
    table.add_column("task")
    table.add_column("seeds", justify="right")
    table.add_column("score", justify="right")
    table.add_column("metrics")
    for name, entry in scores.items():
        metrics = [f"{metric} {_points(value)}" for metric, value in entry["metrics"].items() if metric != "score"]
        table.add_row(name, str(len(entry["seeds"])), _points(entry["metrics"]["score"]), ", ".join(metrics))
    return table


def _points(value: dict[str, float | None]) -> str:
    assert value["mean"] is not None
    spread = "" if value["std"] is None else f" ± {100 * value['std']:.2f}"
    return f"{100 * value['mean']:.2f}{spread}"


def _truncations(records: list[dict[str, Any]]) -> list[str]:
    """Once for each task: cutting does not depend on the seed."""
    lines = {}
    for record in records:
        parts = {"train": record["train"], **record["splits"]}
        cut = [
            f"{part['truncated']:,} of {part['examples']:,} in {name}"
            for name, part in parts.items()
            if part["truncated"]
        ]
        if cut:
            lines[record["task"]] = f"{record['task']}: texts cut to fit: {'; '.join(cut)}"
    return list(lines.values())
