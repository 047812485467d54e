"""A tiny model with a tokenizer, made-up task folders in every format, and fine-tuning through the command line."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import sharedqkv_console
from sharedqkv import SharedQKVConfig, SharedQKVForMaskedLM
from sharedqkv.data.tokenizer import train_tokenizer
from sharedqkv.tasks.glue import GLUE
from sharedqkv.tasks.sources import OFFICIAL_TSV

GOOD = ["fine", "lovely", "great", "charming"]
BAD = ["dull", "awful", "poor", "tedious"]
THINGS = ["film", "book", "play", "song", "plot", "scene"]
FAST = {"max_length": 24, "epochs": 1, "batch_size": 8, "learning_rate": 0.003}
"""Settings that train in a second."""
SQUAD_FAST = {**FAST, "max_length": 32, "stride": 8, "max_question_length": 10}


def make_model(folder: Path, variant: str = "standard", seed: int = 0, **config: Any) -> Path:
    import torch

    torch.manual_seed(seed)
    words = [*GOOD, *BAD, *THINGS, "the", "is", "a", "very", "who", "wrote", "what", "anna", "bob", "carl", "?"]
    tokenizer = train_tokenizer([" ".join(words)] * 3, 120)
    values = {
        "vocab_size": len(tokenizer),
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 40,
        "attention_variant": variant,
        **config,
    }
    SharedQKVForMaskedLM(SharedQKVConfig(**values)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_rows(task: str, count: int, seed: int = 0, labelled: bool = True) -> list[dict[str, Any]]:
    """Rows in the hub's columns; the label follows from the words."""
    chosen = random.Random(f"{task} {seed}")
    definition = GLUE[task]
    rows = []
    for index in range(count):
        classes = len(definition.labels) or 2
        label = index % classes
        word = chosen.choice(GOOD if label else BAD)
        texts = [f"the {chosen.choice(THINGS)} is {word} {'very ' * chosen.randint(0, 3)}".strip()]
        texts += [f"a {chosen.choice(THINGS)} {index}" for _ in definition.text_columns[1:]]
        row = dict(zip(definition.text_columns, texts, strict=True))
        row["label"] = (label if definition.labels else float(label * 2 + 1)) if labelled else -1
        rows.append({**row, "idx": index})
    return rows


def make_questions(count: int, unanswerable: bool = False) -> list[dict[str, Any]]:
    chosen = random.Random(0)
    rows = []
    for index in range(count):
        name, thing = chosen.choice(["anna", "bob", "carl"]), chosen.choice(THINGS)
        before = "the song is fine . " * chosen.randint(0, 4)
        context = f"{before}{name} wrote the {thing} . " + "a play is dull . " * chosen.randint(0, 4)
        known = not (unanswerable and index % 2)
        answers = {"text": [name], "answer_start": [len(before)]} if known else {"text": [], "answer_start": []}
        rows.append({"id": f"q{index}", "question": f"who wrote the {thing} ?", "context": context, "answers": answers})
    return rows


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_official_tsv(folder: Path, task: str, split: str, rows: list[dict[str, Any]]) -> Path:
    """As GLUE's download lays it out: its own names of columns, class names where it has them, other columns too."""
    layout = OFFICIAL_TSV[task]
    path = folder / layout.folder / layout.file(split)
    path.parent.mkdir(parents=True, exist_ok=True)
    theirs = {ours: name for name, ours in layout.columns.items()}
    labels = GLUE[task].labels if task in GLUE and GLUE[task].submits_names else ()
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n")
        is_test = split.startswith("test")
        if layout.headless and not is_test:
            for row in rows:
                writer.writerow(["gj04", row["label"], "", row["sentence"]])
            return path
        columns = [column for column in rows[0] if column != "idx" and not (is_test and column == "label")]
        writer.writerow([theirs.get("index", "index"), "genre", *(theirs.get(name, name) for name in columns)])
        for row in rows:
            values = [labels[row[name]] if name == "label" and labels else row[name] for name in columns]
            writer.writerow([row["idx"], "fiction", *values])
    return path


def write_squad_json(path: Path, rows: list[dict[str, Any]]) -> None:
    paragraphs = [
        {
            "context": row["context"],
            "qas": [
                {
                    "id": row["id"],
                    "question": row["question"],
                    "answers": [
                        {"text": text, "answer_start": start}
                        for text, start in zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
                    ],
                }
            ],
        }
        for row in rows
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": "x", "data": [{"title": "t", "paragraphs": paragraphs}]}), encoding="utf-8")


def make_task(folder: Path, task: str, train: int = 24, validation: int = 12, test: int = 0) -> Path:
    """A GLUE task as JSONL."""
    write_jsonl(folder / task / "train.jsonl", make_rows(task, train))
    for number, split in enumerate(GLUE[task].validation, 1):
        write_jsonl(folder / task / f"{split.name}.jsonl", make_rows(task, validation, seed=number))
    for number, split in enumerate(GLUE[task].test if test else (), 5):
        write_jsonl(folder / split.config / f"{split.name}.jsonl", make_rows(task, test, number, labelled=False))
    return folder


def arguments_for(model: Path, data: Path | None, output: Path, *flags: str, **options: Any) -> list[str]:
    """`seeds`, `tasks` and fields of a recipe as options."""
    values = {"tasks": "cola", "seeds": "2", **FAST, **options}
    return [
        *("finetune", "--model", str(model), "--output", str(output)),
        *(["--data", str(data)] if data else []),
        *(f"--{name}={value}" for name, value in values.items()),
        *flags,
    ]


def run_here(*arguments: Any, **options: Any) -> int:
    return sharedqkv_console.main(arguments_for(*arguments, **options))


def predictions(output: Path) -> dict[str, str]:
    """Every prediction file's content, by its path in the run."""
    files = sorted((output / "predictions").rglob("*.jsonl"))
    return {str(file.relative_to(output)): file.read_text(encoding="utf-8") for file in files}
