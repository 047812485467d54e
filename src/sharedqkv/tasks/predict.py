"""Ask a fine-tuned model that a run kept."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sharedqkv.data.tokenizer import load_tokenizer
from sharedqkv.models import SharedQKVForQuestionAnswering, SharedQKVForSequenceClassification
from sharedqkv.schema import build
from sharedqkv.tasks.cells import Cell, kept_cells
from sharedqkv.tasks.glue import GlueTask
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.tasks.registry import get_task
from sharedqkv.tasks.task import Record, Row, Task
from sharedqkv.tasks.training import outputs_of
from sharedqkv.training.run_folder import RunFolder


@dataclass(frozen=True)
class Answer:
    prediction: str | float
    scores: dict[str, float]
    """Probabilities of the classes; for SQuAD the answer's score and the odds of "no answer"."""


class Predictor:
    """A kept model with its task, tokenizer and recipe."""

    def __init__(self, run: str, task: str | None = None, seed: int | None = None):
        cell = _find_cell(Path(run), task, seed)
        self.task: Task = get_task(cell.task)
        record = cell.record()
        assert record is not None
        self.recipe: FinetuneRecipe = build(FinetuneRecipe, record["recipe"], str(cell.record_file))
        self.folder = cell.model

    @cached_property
    def tokenizer(self) -> Any:
        return load_tokenizer(str(self.folder))

    @cached_property
    def model(self) -> Any:
        is_glue = isinstance(self.task, GlueTask)
        model_class = SharedQKVForSequenceClassification if is_glue else SharedQKVForQuestionAnswering
        return model_class.from_pretrained(self.folder, attn_implementation=self.recipe.attn_implementation)

    def __call__(self, rows: Sequence[Row], where: str) -> tuple[list[Answer], int]:
        """Answers to rows with the task's text columns, and how many had to be cut."""
        examples = self.task.examples(rows, where, labelled=False)
        features = self.task.features(examples, self.tokenizer, self.recipe)
        outputs = outputs_of(self.model, features, self.recipe, self.tokenizer.pad_token_id)
        return [
            self._answer(r) for r in self.task.records(examples, features, outputs, self.recipe)
        ], features.truncated

    def _answer(self, record: Record) -> Answer:
        if not isinstance(self.task, GlueTask):
            scores = record["scores"]
            return Answer(record["prediction"], {"span": scores["span"], "null_odds": scores["null_odds"]})
        if not self.task.labels:
            return Answer(record["prediction"], {})
        logits = np.array(record["scores"])
        shares = np.exp(logits - logits.max())
        named = zip(self.task.labels, (shares / shares.sum()).tolist(), strict=True)
        return Answer(self.task.labels[record["prediction"]], dict(named))


def _find_cell(run: Path, task: str | None, seed: int | None) -> Cell:
    RunFolder(run).info()  # names what is missing
    kept = [cell for cell in kept_cells(run) if cell.model.is_dir()]
    if not kept:
        raise ValueError(f"{run} kept no model: run `sharedqkv finetune` with --keep-models, finished cells included")
    tasks = list(dict.fromkeys(cell.task for cell in kept))
    if task is None and len(tasks) > 1:
        raise ValueError(f"{run} has models for {', '.join(tasks)}: choose one with --task")
    chosen = [cell for cell in kept if cell.task == (task or tasks[0]) and seed in (None, cell.seed)]
    if not chosen:
        raise ValueError(f"{run} has no model of task {task}, seed {seed}; it has: {'; '.join(map(str, kept))}")
    return chosen[0]


def rows_from_texts(texts: Sequence[str], columns: Sequence[str], where: str) -> Row:
    if len(texts) != len(columns):
        raise ValueError(f"{where}: expected {len(columns)} texts ({', '.join(columns)}), not {len(texts)}")
    return dict(zip(columns, texts, strict=True))


def rows_from_lines(lines: Iterable[str], columns: Sequence[str], where: str) -> Iterator[Row]:
    """An example a line; two texts are separated by a tab. Empty lines are passed over."""
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if text.strip():
            yield rows_from_texts(text.split("\t") if len(columns) > 1 else [text], columns, f"{where}, line {number}")
