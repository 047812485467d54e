"""What GLUE's tasks and SQuAD have in common, so that one loop fine-tunes on any of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sharedqkv.tasks.recipe import FinetuneRecipe

Row = Mapping[str, Any]
"""A row of a data set, in the columns of the hub."""
Record = dict[str, Any]
"""What is kept of a prediction: id, label, prediction, scores."""


@dataclass(frozen=True)
class Split:
    config: str
    """The folder, or the hub's configuration, that holds it."""
    name: str
    scored_as: str | None = None
    """Name of its score; None for test sets, whose labels are not public."""
    submitted_as: str | None = None
    """File in a submission to the benchmark."""


@dataclass(frozen=True)
class Features:
    """Model inputs, a dictionary each. An example may give several: SQuAD's windows."""

    inputs: list[dict[str, Any]]
    truncated: int
    """How many examples lost text."""
    details: Any = None
    """What the task needs to turn the model's outputs into predictions."""


class Task(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def text_columns(self) -> tuple[str, ...]: ...

    @property
    def train(self) -> Split: ...

    @property
    def validation(self) -> tuple[Split, ...]: ...

    @property
    def test(self) -> tuple[Split, ...]: ...

    def examples(self, rows: Sequence[Row], where: str, labelled: bool = True) -> list[Any]:
        """Rows, checked; `where` names their file in errors."""

    def new_model(self, encoder: Any) -> Any:
        """The encoder with a new head."""

    def features(
        self, examples: Sequence[Any], tokenizer: Any, recipe: FinetuneRecipe, training: bool = False
    ) -> Features: ...

    def records(
        self, examples: Sequence[Any], features: Features, outputs: Sequence[np.ndarray], recipe: FinetuneRecipe
    ) -> list[Record]:
        """Predictions from the model's outputs, one array for each of the inputs."""

    def score(self, split: Split, records: Sequence[Record]) -> dict[str, float]:
        """Metrics by name, with the task's own as `score`."""


def check_columns(rows: Sequence[Row], expected: Sequence[str], where: str) -> None:
    if not rows:
        raise ValueError(f"{where}: the split is empty; expected at least one row")
    missing = [column for column in expected if column not in rows[0]]
    if missing:
        raise ValueError(
            f"{where}: no column {', '.join(missing)}; it has {', '.join(rows[0])}, expected {', '.join(expected)}"
        )


def check_text(row: Row, column: str, where: str) -> str:
    text = row.get(column)
    if not isinstance(text, str):
        raise ValueError(f"{where}: {column} must be text, not {text!r}")
    return text
