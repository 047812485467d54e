"""The table of GLUE's tasks: rows into examples, examples into inputs, outputs into predictions."""

import numpy as np
import pytest
from finetuning_helpers import make_model, make_rows

from sharedqkv.data.tokenizer import load_tokenizer
from sharedqkv.tasks.glue import GLUE
from sharedqkv.tasks.metrics import GLUE_METRICS
from sharedqkv.tasks.recipe import FinetuneRecipe


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return load_tokenizer(str(make_model(tmp_path_factory.mktemp("model"))))


def test_every_metric_has_a_split_and_every_split_a_metric():
    assert {split.scored_as for task in GLUE.values() for split in task.validation} == set(GLUE_METRICS)


def test_submission_names_are_the_benchmarks():
    names = [split.submitted_as for task in GLUE.values() for split in task.test]
    official = "CoLA SST-2 MRPC STS-B QQP MNLI-m MNLI-mm AX QNLI RTE WNLI"
    assert names == [f"{name}.tsv" for name in official.split()]


@pytest.mark.parametrize("label", [1, "1", "neutral"])
def test_labels_are_numbers_or_names(label):
    row = {"premise": "a", "hypothesis": "b", "label": label}
    assert GLUE["mnli"].examples([row], "here")[0].label == 1


@pytest.mark.parametrize("label", [3, -1, "maybe", None, 0.5, ""])
def test_unknown_labels_name_file_row_and_the_known(label):
    rows = [{"premise": "a", "hypothesis": "b", "label": value} for value in (0, label)]
    with pytest.raises(ValueError, match=r"dev\.tsv, row 2: unknown label .*0 \(entailment\), 1 \(neutral\)"):
        GLUE["mnli"].examples(rows, "dev.tsv")


@pytest.mark.parametrize("label", [5.5, -1, "high", None, float("nan")])
def test_similarities_lie_between_0_and_5(label):
    with pytest.raises(ValueError, match=r"row 1: label .* is no number from 0 to 5"):
        GLUE["stsb"].examples([{"sentence1": "a", "sentence2": "b", "label": label}], "here")


def test_wrong_columns_name_what_is_there_and_what_is_expected():
    with pytest.raises(ValueError, match="no column sentence; it has text, label, expected sentence, label"):
        GLUE["cola"].examples([{"text": "a", "label": 0}], "here")


def test_texts_must_be_texts():
    with pytest.raises(ValueError, match="row 1: sentence must be text, not None"):
        GLUE["cola"].examples([{"sentence": None, "label": 0}], "here")


def test_an_empty_split_is_an_error():
    with pytest.raises(ValueError, match=r"cola\.jsonl: the split is empty"):
        GLUE["cola"].examples([], "cola.jsonl")


def test_ids_are_the_rows_idx_or_their_number():
    rows = make_rows("cola", 3)
    assert [example.id for example in GLUE["cola"].examples([{**row, "idx": 7} for row in rows], "")] == [7, 7, 7]
    for row in rows:
        del row["idx"]
    assert [example.id for example in GLUE["cola"].examples(rows, "")] == [0, 1, 2]


def test_long_texts_are_cut_and_counted(tokenizer):
    rows = [{"sentence": "the film is fine " * times, "label": 0} for times in (1, 2, 3)]
    examples = GLUE["cola"].examples(rows, "")
    features = GLUE["cola"].features(examples, tokenizer, FinetuneRecipe(max_length=10))
    assert [len(row["input_ids"]) for row in features.inputs] == [6, 10, 10]
    assert features.truncated == 1  # eight words and two special tokens just fit


def test_pairs_get_token_types_and_labels_only_in_training(tokenizer):
    examples = GLUE["rte"].examples(make_rows("rte", 2), "")
    recipe = FinetuneRecipe()
    assert set(GLUE["rte"].features(examples, tokenizer, recipe).inputs[0]["token_type_ids"]) == {0, 1}
    assert "labels" not in GLUE["rte"].features(examples, tokenizer, recipe).inputs[0]
    assert GLUE["rte"].features(examples, tokenizer, recipe, training=True).inputs[1]["labels"] == 1


@pytest.mark.parametrize(
    ("task", "outputs", "prediction", "submitted"),
    [
        ("cola", [0.1, 2.0], 1, "1"),
        ("mnli", [0.1, 0.2, 0.3], 2, "contradiction"),
        ("qnli", [3.0, 0.2], 0, "entailment"),
        ("wnli", [3.0, 0.2], 0, "0"),
        ("stsb", [5.25], 5.25, "5.000"),
        ("stsb", [1.23456], pytest.approx(1.23456), "1.235"),
    ],
)
def test_predictions_and_their_submitted_form(task, outputs, prediction, submitted):
    examples = GLUE[task].examples(make_rows(task, 1, labelled=False), "", labelled=False)
    [record] = GLUE[task].records(examples, None, [np.array(outputs, dtype=np.float32)], FinetuneRecipe())
    assert record["label"] is None
    assert record["prediction"] == prediction
    assert record["scores"] == pytest.approx(outputs)
    assert GLUE[task].submitted(record) == submitted
