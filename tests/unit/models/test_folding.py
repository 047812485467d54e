"""What `fold()` takes away, what it refuses, and what it leaves alone."""

import copy

import pytest
import torch
from helpers import make_batch, run_with_gradients, tiny_config, tiny_model
from kernel_helpers import DEVICE, needs_kernels
from torch.testing import assert_close

from sharedqkv import SharedQKVModel


@pytest.mark.parametrize("name", ["shared", "rolled"])
@pytest.mark.parametrize(("positions", "left"), [("absolute", {"query"}), ("rotary", {"query", "key"})])
def test_the_diagonals_that_are_left(name, positions, left):
    model = tiny_model("Model", tiny_config(name, position_embedding_type=positions)).fold()
    for attention in model.encoder.attentions():
        assert {key for key, _ in attention.self.named_parameters()} == {f"{n}_scale" for n in left} | {"shared.weight"}
    assert set(model.config.attention_options["diagonals"].split("_")) == left


def test_keeps_other_options():
    model = tiny_model("Model", tiny_config("shared", attention_options={"bias": True})).fold()
    assert model.config.attention_options == {"bias": True, "diagonals": "query", "init": "ones"}


@pytest.mark.parametrize("name", ["standard", "symmetric", "pairwise", "tied", "grouped", "narrow", "low_rank"])
def test_nothing_to_fold_is_no_error(name):
    model = tiny_model("Model", tiny_config(name))
    weights = copy.deepcopy(model.state_dict())
    options = dict(model.config.attention_options)
    model.fold()
    assert model.config.attention_options == options
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(tensor, weights[key]) for key, tensor in model.state_dict().items())


def test_another_model_of_the_same_configuration_is_left_alone():
    config = tiny_config("shared")
    folded, other = SharedQKVModel(config), SharedQKVModel(config)
    folded.fold()
    assert other.config is config
    assert config.attention_options == {}
    assert folded.encoder.attentions()[0].config is folded.config


def test_the_backend_can_still_be_changed():
    model = tiny_model("MaskedLM", tiny_config("shared"), "sdpa").fold()
    batch = make_batch("MaskedLM").inputs
    by_sdpa = model(**batch).logits
    model.set_attn_implementation("eager")
    outputs = model(**batch, output_attentions=True)
    assert_close(outputs.logits, by_sdpa, atol=1e-4, rtol=1e-4)
    assert len(outputs.attentions) == 2


@needs_kernels
@pytest.mark.parametrize("positions", ["absolute", "rotary"])
def test_fused_backend(positions):
    config = tiny_config("shared", hidden_size=64, num_attention_heads=2, position_embedding_type=positions)
    model = tiny_model("Model", config, "fused").to(DEVICE)
    inputs = {name: tensor.to(DEVICE) for name, tensor in make_batch("Model").inputs.items()}
    before = model(**inputs).last_hidden_state
    real = inputs["attention_mask"].bool()
    assert_close(model.fold()(**inputs).last_hidden_state[real], before[real], atol=1e-4, rtol=1e-4)


def test_a_folded_model_can_be_trained():
    model = tiny_model("MaskedLM", tiny_config("shared")).fold().train()
    _, gradients = run_with_gradients(model, "MaskedLM", make_batch("MaskedLM"))
    assert gradients.keys() == {name for name, _ in model.named_parameters()}
    assert all(gradient.abs().sum() > 0 for gradient in gradients.values())


def test_adapters_must_be_merged_first():
    peft = pytest.importorskip("peft")
    model = tiny_model("SequenceClassification", tiny_config("shared"))
    weights = copy.deepcopy(model.state_dict())
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", target_modules="all-linear"))
    with pytest.raises(ValueError, match=r"needs plain output projections, not Linear .*merge_and_unload"):
        model.fold()
    merged = adapted.merge_and_unload()
    assert merged.state_dict().keys() == weights.keys(), "something was folded all the same"
    batch = make_batch("SequenceClassification").inputs
    before = merged(**batch).logits
    assert_close(merged.fold()(**batch).logits, before, atol=1e-4, rtol=1e-4)


def test_only_diagonals_that_exist():
    with pytest.raises(ValueError, match="'diagonals' must be one of query_key_value, query_key, query, not 'value'"):
        tiny_config("shared", attention_options={"diagonals": "value"})
    with pytest.raises(ValueError, match=r"unknown attention_options \['diagonals'\] for variant 'tied'"):
        tiny_config("tied", attention_options={"diagonals": "query"})
