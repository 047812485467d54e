"""Projections together and one by one."""

import pytest
import torch
from helpers import make_batch, tensors_of, tiny_config, tiny_model
from torch import nn
from torch.testing import assert_close

from sharedqkv.attention import base


def loss_and_gradients(model, batch):
    outputs = model(**batch)
    model.zero_grad()
    outputs.loss.backward()
    return tensors_of(outputs) | {name: parameter.grad for name, parameter in model.named_parameters()}


def test_one_product_gives_the_values_and_gradients_of_many(variant, monkeypatch):
    model = tiny_model("MaskedLM", tiny_config(variant))
    batch = make_batch("MaskedLM").all()
    apart = loss_and_gradients(model, batch)
    monkeypatch.setattr(base, "one_product_is_faster", lambda hidden: True)
    together = loss_and_gradients(model, batch)
    assert together.keys() == apart.keys()
    for name, tensor in together.items():
        assert_close(tensor, apart[name], rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_layers_that_must_be_called_are_called(monkeypatch):
    monkeypatch.setattr(base, "one_product_is_faster", lambda hidden: True)
    model = tiny_model("Model", tiny_config("standard"))
    seen = []
    model.encoder.layer[0].attention.self.key.register_forward_hook(lambda *_: seen.append("hook"))
    adapted = model.encoder.layer[1].attention.self
    adapted.value = nn.Sequential(adapted.value, nn.Identity())
    adapted.value[1].register_forward_hook(lambda *_: seen.append("adapter"))
    with torch.no_grad():
        model(**make_batch("Model").all())
    assert seen == ["hook", "adapter"]


def test_an_output_scale_goes_through_an_adapter_too():
    model = tiny_model("Model", tiny_config("shared"))
    batch = make_batch("Model").all()
    with torch.no_grad():
        expected = model(**batch).last_hidden_state
        for layer in model.encoder.layer:
            layer.attention.output.dense = nn.Sequential(layer.attention.output.dense)
        assert_close(model(**batch).last_hidden_state, expected, rtol=1e-4, atol=1e-5)


def test_weights_that_come_only_when_a_layer_is_called(variant, monkeypatch):
    """As with `device_map="auto"`, when Accelerate keeps weights elsewhere."""
    from accelerate import cpu_offload

    monkeypatch.setattr(base, "one_product_is_faster", lambda hidden: True)
    model = tiny_model("Model", tiny_config(variant))
    token_ids = make_batch("Model").inputs["input_ids"]
    with torch.no_grad():
        expected = model(token_ids).last_hidden_state
        cpu_offload(model, execution_device=torch.device("cpu"))
        assert_close(model(token_ids).last_hidden_state, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["attention.self.key", "attention.output.dense"])
def test_backward_hooks_are_called(name, monkeypatch):
    monkeypatch.setattr(base, "one_product_is_faster", lambda hidden: True)
    model = tiny_model("MaskedLM", tiny_config("standard" if name.endswith("key") else "shared"))
    seen = []
    model.bert.encoder.layer[0].get_submodule(name).register_full_backward_hook(lambda *_: seen.append(name))
    model(**make_batch("MaskedLM").all()).loss.backward()
    assert seen == [name]


def test_layers_with_and_without_a_bias(monkeypatch):
    model = tiny_model("Model", tiny_config("standard"))
    model.encoder.layer[0].attention.self.key.bias = None
    batch = make_batch("Model").all()
    with torch.no_grad():
        expected = model(**batch).last_hidden_state
        monkeypatch.setattr(base, "one_product_is_faster", lambda hidden: True)
        assert_close(model(**batch).last_hidden_state, expected, rtol=1e-4, atol=1e-5)


def test_diagonals_may_be_wider_than_the_model():
    model = tiny_model("Model", tiny_config("shared"), dtype=torch.bfloat16)
    for name, parameter in model.named_parameters():
        if name.endswith("_scale"):
            parameter.data = parameter.data.float()
    with torch.no_grad():
        assert torch.isfinite(model(**make_batch("Model").all()).last_hidden_state).all()


def test_one_product_compiles_without_a_break(monkeypatch):
    monkeypatch.setattr(base, "one_product_is_faster", lambda hidden: True)
    model = tiny_model("Model", tiny_config("standard"))
    batch = make_batch("Model").all()
    with torch.no_grad():
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        assert_close(compiled(**batch).last_hidden_state, model(**batch).last_hidden_state)
