"""Ask a fine-tuned model: `sharedqkv predict RUN --text "A fine film."`. RUN must have been made with --keep-models.

A task with two texts (MNLI's premise and hypothesis, SQuAD's question and paragraph) takes two after --text, or a
tab between them in a file or on standard input, an example a line. Files ending in .jsonl hold the task's columns.
Prints a JSON object a line.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from sharedqkv.tasks.sources import read_jsonl
from sharedqkv.tasks.task import Row

_BATCH = 1000
"""Examples read before they are answered."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="run folder of `sharedqkv finetune --keep-models`")
    parser.add_argument("--task", help="which of the run's tasks (default: the only one)")
    parser.add_argument("--seed", type=int, help="which of its models (default: the first)")
    parser.add_argument("--int8", action="store_true", help="8-bit weights: less memory, not less time (needs torchao)")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--text", nargs="+", metavar="TEXT", help="one example: its text, or its two texts")
    given.add_argument("--file", type=Path, help="examples, one a line; default: standard input")


def run(options: argparse.Namespace) -> int:
    from sharedqkv.interop.quantization import quantize_int8
    from sharedqkv.tasks.predict import Predictor
    from sharedqkv.training.pretrain import quiet_transformers

    quiet_transformers()
    predictor = Predictor(options.run, options.task, options.seed)
    rows, where = _rows(options, predictor.task.text_columns)
    predictor.model = quantize_int8(predictor.model) if options.int8 else predictor.model.fold()
    truncated = 0
    for first in range(0, len(rows), _BATCH):
        answers, cut = predictor(rows[first : first + _BATCH], where)
        truncated += cut
        for answer in answers:
            print(json.dumps(dataclasses.asdict(answer), ensure_ascii=False))
    if truncated:
        length = predictor.recipe.max_length
        print(f"{truncated} of {len(rows)} texts were cut to fit {length} tokens", file=sys.stderr)
    return 0


def _rows(options: argparse.Namespace, columns: tuple[str, ...]) -> tuple[list[Row], str]:
    from sharedqkv.tasks.predict import rows_from_lines, rows_from_texts

    if options.text:
        return [rows_from_texts(options.text, columns, "--text")], "--text"
    if options.file is None:
        rows, where = list(rows_from_lines(sys.stdin, columns, "standard input")), "standard input"
    elif options.file.suffix == ".jsonl":
        rows, where = list(read_jsonl(options.file)), str(options.file)
    else:
        with open(options.file, encoding="utf-8") as lines:
            rows, where = list(rows_from_lines(lines, columns, str(options.file))), str(options.file)
    if not rows:
        raise ValueError(f"{where}: no text to predict for")
    return rows, where
