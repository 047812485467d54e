"""Many inputs through a model: padding, joined tables, and answers in the order of the inputs."""

from contextlib import suppress

import numpy as np
import pytest
import torch
from helpers import tiny_config, tiny_model

from sharedqkv.tasks.outputs import InputTable, device_batches, float32_products, padded_length, table_outputs
from sharedqkv.tasks.recipe import FinetuneRecipe

PAD = 0
RECIPE = FinetuneRecipe(max_length=24, eval_batch_size=3)


def inputs(*lengths):
    return [
        {
            "input_ids": [10 + (7 * place + length) % 29 for place in range(length)],
            "token_type_ids": [0, *[1] * (length - 1)],
        }
        for length in lengths
    ]


@pytest.mark.parametrize(("longest", "max_length", "padded"), [(9, 24, 16), (16, 24, 16), (9, 20, 9)])
def test_rows_are_padded_to_a_multiple_of_8_where_that_fits(longest, max_length, padded):
    assert padded_length(longest, max_length) == padded


def test_batches_hold_rows_of_like_length():
    rows = inputs(3, 17, 5, 9, 4)
    batches = list(device_batches(InputTable.of(rows, RECIPE, PAD), RECIPE, torch.device("cpu")))
    assert [picked.tolist() for picked, _ in batches] == [[1, 3, 2], [4, 0]]
    assert [batch["input_ids"].shape for _, batch in batches] == [(3, 24), (2, 8)]
    for picked, batch in batches:
        for place, number in enumerate(picked.tolist()):
            is_token = batch["attention_mask"][place].bool()
            for name in ("input_ids", "token_type_ids"):
                assert batch[name][place][is_token].tolist() == rows[number][name]
                assert not batch[name][place][~is_token].any()


def test_joined_tables_are_the_table_of_all():
    parts = [inputs(3, 5), inputs(20), inputs(9, 4)]
    joined = InputTable.joined([InputTable.of(part, RECIPE, PAD) for part in parts], PAD)
    whole = InputTable.of([row for part in parts for row in part], RECIPE, PAD)
    for name in ("ids_RL", "types_RL", "lengths_R"):
        assert np.array_equal(getattr(joined, name), getattr(whole, name))


@pytest.mark.parametrize("head", ["SequenceClassification", "QuestionAnswering"])
def test_each_input_gets_the_answer_it_gets_alone(head):
    torch.manual_seed(0)
    model = tiny_model(head, tiny_config()).eval()
    rows = inputs(3, 11, 5, 9, 4)
    outputs = table_outputs(model, InputTable.of(rows, RECIPE, PAD), RECIPE).of_inputs()
    for row, output in zip(rows, outputs, strict=True):
        length = len(row["input_ids"])
        alone = model(**{name: torch.tensor([values], device=model.device) for name, values in row.items()})
        if head == "SequenceClassification":
            assert output == pytest.approx(alone.logits[0].tolist(), abs=1e-5)
        else:
            assert output[0, :length] == pytest.approx(alone.start_logits[0].tolist(), abs=1e-5)
            assert output[1, :length] == pytest.approx(alone.end_logits[0].tolist(), abs=1e-5)


def precision():
    return torch.backends.cuda.matmul.fp32_precision


@pytest.fixture
def _precision_put_back():
    everywhere = torch.backends.fp32_precision
    yield
    torch.backends.fp32_precision = everywhere
    torch.set_float32_matmul_precision("highest")


@pytest.mark.usefixtures("_precision_put_back")
@pytest.mark.parametrize("before", ["highest", "high", "as Transformers sets it to compile"])
def test_tf32_is_on_inside_and_afterwards_what_it_was(monkeypatch, before):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    if before in ("highest", "high"):
        torch.set_float32_matmul_precision(before)
    else:
        torch.backends.cuda.matmul.fp32_precision, torch.backends.fp32_precision = "none", "tf32"
    was = precision()
    with float32_products(FinetuneRecipe(tf32=False)):
        assert precision() == was
    with float32_products(FinetuneRecipe(tf32=True)):
        assert precision() == "tf32"
    assert precision() == was
    with suppress(ZeroDivisionError), float32_products(FinetuneRecipe(tf32=True)):
        1 / 0  # noqa: B018
    assert precision() == was


def test_predicting_uses_tf32_on_a_gpu_only():
    model = tiny_model("SequenceClassification", tiny_config())
    torch.set_float32_matmul_precision("highest")
    seen = []
    model.register_forward_hook(lambda *_: seen.append(precision()))
    recipe = FinetuneRecipe(max_length=24, tf32=True)
    table_outputs(model, InputTable.of(inputs(3, 11), recipe, PAD), recipe)
    assert seen == ["tf32" if torch.cuda.is_available() else "ieee"]
    assert precision() == "ieee"
