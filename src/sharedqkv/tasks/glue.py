"""Tasks on one text or two, and GLUE as a table of them. Labels and columns are the hub's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sharedqkv.tasks.metrics import GLUE_METRICS, Metric, metric_scores
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.tasks.task import Features, Record, Row, Split, check_columns, check_text

if TYPE_CHECKING:
    from sharedqkv.models import SharedQKVForSequenceClassification


@dataclass(frozen=True)
class GlueExample:
    id: Any
    texts: tuple[str, ...]
    label: int | float | None
    """None where labels are not public."""


@dataclass(frozen=True)
class GlueTask:
    name: str
    text_columns: tuple[str, ...]
    """One text, or two."""
    labels: tuple[str, ...]
    """Names of the classes; none where the label is a number, as in STS-B."""
    metrics: tuple[Metric, ...]
    """The score is their mean."""
    validation: tuple[Split, ...]
    test: tuple[Split, ...] = ()
    submits_names: bool = False
    """Whether a submission holds names of classes instead of their numbers."""

    @property
    def train(self) -> Split:
        return Split(self.name, "train")

    def examples(self, rows: Sequence[Row], where: str, labelled: bool = True) -> list[GlueExample]:
        check_columns(rows, (*self.text_columns, *(["label"] if labelled else [])), where)
        examples = []
        for number, row in enumerate(rows):
            place = f"{where}, row {number + 1}"
            texts = tuple(check_text(row, column, place) for column in self.text_columns)
            label = self._label(row["label"], place) if labelled else None
            examples.append(GlueExample(row.get("idx", number), texts, label))
        return examples

    def _label(self, label: Any, place: str) -> int | float:
        if not self.labels:
            try:
                number = float(label)
            except (TypeError, ValueError):
                number = math.nan
            if not 0 <= number <= 5:
                raise ValueError(f"{place}: label {label!r} is no number from 0 to 5")
            return number
        if label in self.labels:
            return self.labels.index(label)
        numbers = {str(number): number for number in range(len(self.labels))}
        if str(label) not in numbers:
            known = ", ".join(f"{number} ({name})" for number, name in enumerate(self.labels))
            raise ValueError(f"{place}: unknown label {label!r}; {self.name} has {known}")
        return numbers[str(label)]

    def new_model(self, encoder: Any) -> "SharedQKVForSequenceClassification":
        from sharedqkv.models import SharedQKVForSequenceClassification

        config = encoder.config
        config.num_labels = len(self.labels) or 1
        config.problem_type = "single_label_classification" if self.labels else "regression"
        if self.labels:
            config.id2label = dict(enumerate(self.labels))
            config.label2id = {name: number for number, name in enumerate(self.labels)}
        model = SharedQKVForSequenceClassification(config)
        model.bert = encoder
        return model

    def features(
        self, examples: Sequence[GlueExample], tokenizer: Any, recipe: FinetuneRecipe, training: bool = False
    ) -> Features:
        columns = zip(*(example.texts for example in examples), strict=True)
        encoded = tokenizer(*map(list, columns), truncation=True, max_length=recipe.max_length)
        inputs = [
            {"input_ids": ids, "token_type_ids": types}
            for ids, types in zip(encoded["input_ids"], encoded["token_type_ids"], strict=True)
        ]
        if training:
            for row, example in zip(inputs, examples, strict=True):
                row["labels"] = example.label
        return Features(inputs, truncated=sum(bool(encoding.overflowing) for encoding in encoded.encodings))

    def records(
        self, examples: Sequence[GlueExample], features: Features, outputs: Sequence[np.ndarray], recipe: FinetuneRecipe
    ) -> list[Record]:
        return [
            {
                "id": example.id,
                "label": example.label,
                "prediction": int(logits.argmax()) if self.labels else float(logits[0]),
                "scores": [float(logit) for logit in logits],
            }
            for example, logits in zip(examples, outputs, strict=True)
        ]

    def score(self, split: Split, records: Sequence[Record]) -> dict[str, float]:
        labels, predictions = ([record[name] for record in records] for name in ("label", "prediction"))
        return metric_scores(self.metrics, labels, predictions)

    def submitted(self, record: Record) -> str:
        """A prediction as the benchmark wants it."""
        prediction = record["prediction"]
        if not self.labels:
            return f"{min(5.0, max(0.0, prediction)):.3f}"
        return self.labels[prediction] if self.submits_names else str(prediction)


def _task(
    name: str, columns: tuple[str, ...], labels: tuple[str, ...], file: str, submits_names: bool = False
) -> GlueTask:
    validation = (Split(name, "validation", scored_as=name),)
    test = (Split(name, "test", submitted_as=file),)
    return GlueTask(name, columns, labels, GLUE_METRICS[name], validation, test, submits_names)


_SENTENCES = ("sentence1", "sentence2")
_PREMISE = ("premise", "hypothesis")
_ENTAILMENT = ("entailment", "not_entailment")
_THREE_WAY = ("entailment", "neutral", "contradiction")
AX = Split("ax", "test", submitted_as="AX.tsv")
"""The diagnostic set: it has no train, MNLI's model answers it."""

GLUE = {
    task.name: task
    for task in (
        _task("cola", ("sentence",), ("unacceptable", "acceptable"), "CoLA.tsv"),
        _task("sst2", ("sentence",), ("negative", "positive"), "SST-2.tsv"),
        _task("mrpc", _SENTENCES, ("not_equivalent", "equivalent"), "MRPC.tsv"),
        _task("stsb", _SENTENCES, (), "STS-B.tsv"),
        _task("qqp", ("question1", "question2"), ("not_duplicate", "duplicate"), "QQP.tsv"),
        GlueTask(
            "mnli",
            _PREMISE,
            _THREE_WAY,
            GLUE_METRICS["mnli_matched"],
            validation=tuple(Split("mnli", f"validation_{part}", f"mnli_{part}") for part in ("matched", "mismatched")),
            test=(
                Split("mnli", "test_matched", submitted_as="MNLI-m.tsv"),
                Split("mnli", "test_mismatched", submitted_as="MNLI-mm.tsv"),
                AX,
            ),
            submits_names=True,
        ),
        _task("qnli", ("question", "sentence"), _ENTAILMENT, "QNLI.tsv", submits_names=True),
        _task("rte", _SENTENCES, _ENTAILMENT, "RTE.tsv", submits_names=True),
        _task("wnli", _SENTENCES, ("not_entailment", "entailment"), "WNLI.tsv"),
    )
}
