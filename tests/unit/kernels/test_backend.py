"""The backend `fused` in whole models."""

import copy

import pytest
import torch
from helpers import POSITIONS, make_batch, run_with_gradients, tiny_config, tiny_model
from kernel_helpers import DEVICE, needs_kernels
from torch.testing import assert_close
from transformers import BertConfig, BertModel

from sharedqkv.attention.base import Projected
from sharedqkv.kernels import backend, op, segments_of

TIED = {"shared": {}, "tied": {}, "key_value": {}, "grouped": {"tie_key_value": True}}
S = torch.zeros(1, 2, 5, 32)


@pytest.fixture
def told(monkeypatch, caplog):
    """What the backend has said since the test began."""
    monkeypatch.setattr(backend, "_told", set())
    return lambda: [record.message for record in caplog.records if record.name == backend.__name__]


@pytest.fixture(params=[False, True], ids=["eager", "compiled"])
def maybe_compiled(request):
    torch._dynamo.reset()
    return (lambda model: torch.compile(model, backend="aot_eager", fullgraph=True)) if request.param else lambda m: m


def small_config(variant, **overrides):
    """As the tiny one, with heads of a size the kernels know."""
    options = TIED.get(variant, {})
    return tiny_config(variant, hidden_size=64, num_attention_heads=2, attention_options=options, **overrides)


def fused_and_sdpa(head, config, **kwargs):
    # A copy: a model writes its backend into its configuration.
    fused = tiny_model(head, copy.deepcopy(config), "fused", **kwargs).to(DEVICE)
    sdpa = tiny_model(head, config, "sdpa", **kwargs).to(DEVICE)
    sdpa.load_state_dict(fused.state_dict())
    assert fused.config._attn_implementation == "fused"
    return fused, sdpa


def on_device(batch):
    for tensors in (batch.inputs, batch.labels):
        tensors.update({name: tensor.to(DEVICE) for name, tensor in tensors.items()})
    return batch


def allow_float32(monkeypatch):
    # On a GPU float32 goes to SDPA, being faster there.
    monkeypatch.setattr(backend, "INTERPRETED", True)


@needs_kernels
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("tie", TIED)
def test_kernels_give_sdpas_values_and_gradients(tie, positions, monkeypatch, told):
    allow_float32(monkeypatch)
    fused, sdpa = fused_and_sdpa("MaskedLM", small_config(tie, position_embedding_type=positions))
    batch = on_device(make_batch("MaskedLM"))
    outputs, gradients = run_with_gradients(fused, "MaskedLM", batch)
    expected_outputs, expected = run_with_gradients(sdpa, "MaskedLM", batch)
    assert not told()
    assert_close(outputs.logits, expected_outputs.logits, atol=1e-4, rtol=1e-4)
    for name, gradient in expected.items():
        assert_close(gradients[name], gradient, atol=1e-4, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}")


@needs_kernels
@torch.no_grad()
def test_packed_documents_are_what_they_are_alone(monkeypatch, told):
    allow_float32(monkeypatch)
    model = tiny_model("Model", small_config("shared", position_embedding_type="rotary"), "fused").to(DEVICE)
    first, second = (torch.randint(5, 40, (1, n), device=DEVICE) for n in (6, 7))
    documents = torch.tensor([[0] * 6 + [1] * 7], device=DEVICE)
    together = model(torch.cat((first, second), dim=1), document_ids=documents).last_hidden_state
    assert_close(together[:, :6], model(first).last_hidden_state, atol=1e-5, rtol=1e-5)
    assert_close(together[:, 6:], model(second).last_hidden_state, atol=1e-5, rtol=1e-5)
    assert not told()


@needs_kernels
def test_checkpointing_drops_the_same_weights_again(monkeypatch, told):
    allow_float32(monkeypatch)
    config = small_config("shared", attention_probs_dropout_prob=0.3)
    model = tiny_model("MaskedLM", config, "fused").to(DEVICE).train()
    batch = on_device(make_batch("MaskedLM"))
    found = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
        torch.manual_seed(1)
        found.append(run_with_gradients(model, "MaskedLM", batch)[1])
    for name, gradient in found[0].items():
        assert torch.equal(gradient, found[1][name]), name
    assert not told()


@needs_kernels
def test_autocast_takes_the_kernels(told):
    fused, sdpa = fused_and_sdpa("MaskedLM", small_config("shared", initializer_range=0.1))
    batch = on_device(make_batch("MaskedLM"))
    with torch.autocast(DEVICE, torch.bfloat16):
        outputs, gradients = run_with_gradients(fused, "MaskedLM", batch)
        expected, _ = run_with_gradients(sdpa, "MaskedLM", batch)
    assert not told()
    assert_close(outputs.loss, expected.loss, atol=0.02, rtol=0.01)
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())


@needs_kernels
def test_kernels_in_a_compiled_model(monkeypatch, told):
    allow_float32(monkeypatch)
    torch._dynamo.reset()
    model = tiny_model("Model", small_config("shared"), "fused").to(DEVICE)
    inputs = on_device(make_batch("Model")).inputs
    expected = model(**inputs).last_hidden_state
    found = torch.compile(model, backend="aot_eager", fullgraph=True)(**inputs).last_hidden_state
    found.sum().backward()
    assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert not told()


@pytest.mark.parametrize("untied", ["standard", "rolled", "overlapping"])
def test_other_variants_go_to_sdpa_and_say_so_once(untied, maybe_compiled, told):
    config = small_config(untied, position_embedding_type="rotary")
    fused, sdpa = fused_and_sdpa("Model", config)
    inputs = on_device(make_batch("Model")).inputs
    found = maybe_compiled(fused)(**inputs).last_hidden_state
    assert_close(found, sdpa(**inputs).last_hidden_state, atol=1e-6, rtol=1e-6)
    assert told() == ['attn_implementation="fused" uses SDPA: keys and values are not one tensor in this variant']


@torch.no_grad()
def test_packed_rows_stay_apart_without_the_kernels():
    fused, sdpa = fused_and_sdpa("Model", small_config("standard"))
    inputs = on_device(make_batch("Model", padded=False)).inputs
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2, device=DEVICE)
    found, expected = (model(**inputs, document_ids=documents).last_hidden_state for model in (fused, sdpa))
    assert_close(found, expected, atol=1e-6, rtol=1e-6)


@torch.no_grad()
def test_other_models_keep_their_masks():
    """Registered without a mask function, the backend would let padding be seen."""
    config = BertConfig(vocab_size=40, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    model = BertModel._from_config(config, attn_implementation="sdpa").eval()
    inputs = make_batch("Model").inputs
    expected = model(**inputs).last_hidden_state
    model.set_attn_implementation("fused")
    assert_close(model(**inputs).last_hidden_state, expected)


def test_a_mask_of_ones_own_is_respected():
    fused, sdpa = fused_and_sdpa("Model", small_config("shared"))
    inputs = on_device(make_batch("Model")).inputs
    inputs["attention_mask"] = torch.rand(2, 1, 7, 7, device=DEVICE) > 0.3
    inputs["attention_mask"][..., 0] = True
    found, expected = (model(**inputs).last_hidden_state for model in (fused, sdpa))
    assert_close(found, expected, atol=1e-6, rtol=1e-6)


def test_reasons_of_the_call():
    assert "not one tensor" in backend.why_not_fused(Projected(S, S, S.clone()), None)
    assert "no other mask" in backend.why_not_fused(same(S), torch.ones(1, 1, 5, 5))


def same(s):
    return Projected(s, s, s)


@needs_kernels
def test_reasons_of_the_kernels(monkeypatch):
    s = S.to(DEVICE)
    scales = {"query_scale_HK": s[0, :, 0], "key_scale_HK": s[0, :, 0]}
    one_head = s[:, :1]
    assert "heads in groups" in backend.why_not_fused(Projected(s, one_head, one_head, **scales), None)
    assert "not torch.float64" in backend.why_not_fused(same(s.double()), None)
    assert "head sizes" in backend.why_not_fused(same(s[..., :8]), None)
    monkeypatch.setattr(backend, "INTERPRETED", False)
    assert "float32" in backend.why_not_fused(same(s), None)
    for kind, longest in backend.LONGEST_FASTER_THAN_SDPA.items():
        for length, expected in ((longest, None), (longest + 1, f"more than {longest} tokens ({kind})")):
            row = torch.zeros(1, 1, length, 32, dtype=torch.bfloat16, device=DEVICE)
            projected = Projected(row.clone(), row, row) if kind == "queries apart" else same(row)
            reason = backend.why_not_fused(projected, None, kind == "rotary")
            assert (reason is None) if expected is None else (expected in reason)
            padded = segments_of(torch.ones(1, length, device=DEVICE), None)
            assert backend.why_not_fused(projected, padded, kind == "rotary") is None


def test_without_a_gpu_or_triton(monkeypatch, told):
    monkeypatch.setattr(op, "INTERPRETED", False)
    assert "need an NVIDIA GPU, and the tensors are on 'cpu'" in backend.why_not_fused(same(S), None)
    model = tiny_model("Model", small_config("shared"), "fused")
    assert torch.isfinite(model(**make_batch("Model").inputs).last_hidden_state).all()
    assert len(told()) == 1
    monkeypatch.setattr(op, "TRITON_INSTALLED", False)
    assert backend.why_not_fused(same(S), None) == "Triton is not installed"
