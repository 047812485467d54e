"""The common suite: every variant × head × backend × position encoding.

Runs on a variant from outside the package with `--variants-from FILE_OR_MODULE`.
"""

import pytest
import torch
from helpers import (
    BACKENDS,
    HEADS,
    POSITIONS,
    Batch,
    attending_as_the_reference,
    make_batch,
    objective,
    run_with_gradients,
    tensors_of,
    tiny_config,
    tiny_model,
)
from safetensors.torch import load_file, save_file
from torch.testing import assert_close
from transformers import AutoConfig

pytestmark = [
    pytest.mark.parametrize("positions", POSITIONS),
    pytest.mark.parametrize("backend", BACKENDS),
    pytest.mark.parametrize("head", HEADS),
]


SCALES_AT_FIRST = {
    "overlapping": {"query_scale": {-0.125, 0.125}, "key_scale": {0.125}, "value_scale": {0.125}},
}
"""Other scales start at one. These are in units of 1/8, those of queries with random signs."""


def build(variant: str, head: str, backend: str, positions: str, dtype=torch.float32, **overrides):
    return tiny_model(head, tiny_config(variant, position_embedding_type=positions, **overrides), backend, dtype)


def token_outputs(head: str, outputs, batch: Batch) -> torch.Tensor:
    """What the model says of the real tokens: all there is to compare when padding changes."""
    real = batch.inputs["attention_mask"].bool()
    name = {"Model": "last_hidden_state", "PreTraining": "prediction_logits", "QuestionAnswering": "start_logits"}
    values = outputs[name.get(head, "logits")]
    return (
        values[real]
        if head in ("Model", "PreTraining", "MaskedLM", "TokenClassification", "QuestionAnswering")
        else values
    )


def test_values_and_gradients_equal_the_reference(variant, head, backend, positions):
    model = build(variant, head, backend, positions, torch.float64)
    batch = make_batch(head)
    outputs, found = run_with_gradients(model, head, batch)
    with attending_as_the_reference(model, batch.inputs["attention_mask"].flatten(0, -2)):
        expected_outputs, expected = run_with_gradients(model, head, batch)
    assert found.keys() == expected.keys() == {name for name, _ in model.named_parameters()}
    for name, gradient in expected.items():
        assert_close(found[name], gradient, atol=1e-9, rtol=1e-7, msg=lambda text, name=name: f"{name}: {text}")
    if head == "Model":  # hidden states of padding itself are nobody's business
        outputs = {"hidden": token_outputs(head, outputs, batch), "pooled": outputs.pooler_output}
        expected_outputs = {
            "hidden": token_outputs(head, expected_outputs, batch),
            "pooled": expected_outputs.pooler_output,
        }
    elif head in ("TokenClassification", "QuestionAnswering"):
        outputs = {"loss": outputs.loss, "tokens": token_outputs(head, outputs, batch)}
        expected_outputs = {"loss": expected_outputs.loss, "tokens": token_outputs(head, expected_outputs, batch)}
    for name, value in tensors_of(expected_outputs).items():
        assert_close(outputs[name], value, atol=1e-9, rtol=1e-7)


@torch.no_grad()
def test_padding_and_batch_mates_change_nothing(variant, head, backend, positions):
    model = build(variant, head, backend, positions)
    batch = make_batch(head)
    padding = batch.inputs["attention_mask"] == 0
    before = model(**batch.inputs)

    other_padding = {**batch.inputs, "input_ids": batch.inputs["input_ids"].masked_fill(padding, 5)}
    assert (other_padding["input_ids"] != batch.inputs["input_ids"]).any()
    after = model(**other_padding)
    assert torch.equal(token_outputs(head, before, batch), token_outputs(head, after, batch))

    other_mate = {**batch.inputs, "input_ids": batch.inputs["input_ids"].clone()}
    other_mate["input_ids"][1] = 6
    for name, value in tensors_of(model(**other_mate)).items():
        assert torch.equal(value[0], before[name][0]), name


@torch.no_grad()
def test_save_and_load_round_trip(variant, head, backend, positions, tmp_path):
    model = build(variant, head, backend, positions)
    batch = make_batch(head)
    model.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    loaded, info = HEADS[head].from_pretrained(tmp_path, attn_implementation=backend, output_loading_info=True)
    assert not any(info.values()), info
    assert AutoConfig.from_pretrained(tmp_path).to_diff_dict() == model.config.to_diff_dict()
    for name, value in tensors_of(model(**batch.all())).items():
        assert torch.equal(loaded(**batch.all())[name], value), name


def test_missing_keys_are_initialised(variant, head, backend, positions, tmp_path, poisoned_memory):
    model = build(variant, head, backend, positions)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if "layer.1.attention.self." not in name}
    assert len(kept) < len(weights)
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded = HEADS[head].from_pretrained(tmp_path, attn_implementation=backend)
    for name, parameter in loaded.named_parameters():
        assert torch.isfinite(parameter).all(), name
        if name in kept:
            assert torch.equal(parameter, kept[name]), name
        elif name.endswith("_scale"):
            starts = SCALES_AT_FIRST.get(variant, {}).get(name.rpartition(".")[2], {1.0})
            assert set(parameter.flatten().tolist()) == starts, name
        elif name.endswith(".bias") and name in weights:
            assert not parameter.any(), name
        elif name in weights:
            assert parameter.std() > 0, name


def test_gradient_checkpointing_gives_the_same_gradients(variant, head, backend, positions):
    model = build(variant, head, backend, positions, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1).train()
    batch = make_batch(head)
    found = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
            assert model.is_gradient_checkpointing
        torch.manual_seed(1)
        found.append(run_with_gradients(model, head, batch)[1])
    plain, checkpointed = found
    assert plain.keys() == checkpointed.keys()
    for name, gradient in plain.items():
        assert torch.equal(gradient, checkpointed[name]), name


@torch.no_grad()
def test_every_output_is_finite_even_for_a_row_of_padding(variant, head, backend, positions):
    model = build(variant, head, backend, positions)
    batch = make_batch(head)
    batch.inputs["attention_mask"][-1] = 0
    outputs = model(**batch.all())
    assert torch.isfinite(objective(head, outputs))
    for name, value in tensors_of(outputs).items():
        assert torch.isfinite(value).all(), name
