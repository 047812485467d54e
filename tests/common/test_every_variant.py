"""What holds for every variant whatever the head: options, packing, precision, compilation, counting."""

import pytest
import torch
from helpers import BACKENDS, POSITIONS, make_batch, run_with_gradients, tiny_config, tiny_model
from torch.testing import assert_close

from sharedqkv.accounting import count_parameters, flops_formula, forward_flops_per_token
from sharedqkv.attention import get_variant
from sharedqkv.models.encoder import SharedQKVAttention


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_gradcheck(variant, norm, positions):
    config = tiny_config(
        variant, hidden_size=16, num_attention_heads=2, norm_placement=norm, position_embedding_type=positions
    )
    config._attn_implementation = "eager"
    model = tiny_model("Model", config, "eager", torch.float64)
    attention = model.encoder.attentions()[0]
    names, parameters = zip(*attention.named_parameters(), strict=True)
    hidden = torch.randn(2, 3, 16, dtype=torch.float64, requires_grad=True)
    mask = torch.zeros(2, 1, 1, 3, dtype=torch.float64)
    mask[1, ..., 2] = torch.finfo(torch.float64).min
    rotation = None
    if positions == "rotary":
        from sharedqkv.attention.rotary import rotation_for

        rotation = rotation_for(torch.arange(3)[None], attention.self.head_size, 100.0, torch.float64)

    def attend(hidden, *values):
        named = dict(zip(names, values, strict=True))
        return torch.func.functional_call(attention, named, (hidden, mask, rotation))[0]

    assert torch.autograd.gradcheck(attend, (hidden, *parameters), fast_mode=True)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("backend", BACKENDS)
@torch.no_grad()
def test_packed_documents_never_see_each_other(variant, backend, positions, norm):
    config = tiny_config(variant, position_embedding_type=positions, norm_placement=norm)
    model = tiny_model("Model", config, backend)
    first, second, other = (torch.randint(5, 40, (1, n)) for n in (6, 7, 7))
    documents = torch.tensor([[0] * 6 + [1] * 7])

    def packed(*parts):
        return model(torch.cat(parts, dim=1), document_ids=documents).last_hidden_state

    together = packed(first, second)
    assert torch.equal(together[:, :6], packed(first, other)[:, :6])
    assert_close(together[:, :6], model(first).last_hidden_state, atol=1e-5, rtol=1e-5)
    assert_close(together[:, 6:], model(second).last_hidden_state, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("backend", BACKENDS)
@torch.no_grad()
def test_longer_padding_changes_little(variant, backend, positions):
    model = tiny_model("Model", tiny_config(variant, position_embedding_type=positions), backend)
    token_ids = torch.randint(5, 40, (2, 6))
    padded = torch.cat((token_ids, torch.zeros(2, 5, dtype=torch.long)), dim=1)
    mask = (torch.arange(11) < 6).long().expand(2, -1)
    assert_close(
        model(padded, attention_mask=mask).last_hidden_state[:, :6],
        model(token_ids).last_hidden_state,
        atol=1e-5,
        rtol=1e-5,
    )


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_bfloat16_autocast_stays_in_bfloat16_and_near(variant, backend, positions, monkeypatch):
    config = tiny_config(variant, position_embedding_type=positions, initializer_range=0.1)
    model = tiny_model("MaskedLM", config, backend)
    batch = make_batch("MaskedLM")
    exact, _ = run_with_gradients(model, "MaskedLM", batch)
    seen = set()
    inner = torch.matmul if backend == "eager" else torch.nn.functional.scaled_dot_product_attention

    def watched(query, key, *args, **kwargs):
        seen.update((query.dtype, key.dtype))
        return inner(query, key, *args, **kwargs)

    where = (torch, "matmul") if backend == "eager" else (torch.nn.functional, "scaled_dot_product_attention")
    monkeypatch.setattr(*where, watched)
    with torch.autocast("cpu", torch.bfloat16):
        rough, gradients = run_with_gradients(model, "MaskedLM", batch)
        stream = model.bert(**batch.inputs).last_hidden_state
    assert torch.bfloat16 in seen
    if backend == "sdpa":
        assert seen == {torch.bfloat16}
    assert stream.dtype == torch.bfloat16, "the residual stream is widened"
    assert_close(rough.loss, exact.loss, atol=0.1, rtol=0.05)
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_half_precision_weights(variant, dtype):
    config = tiny_config(variant, initializer_range=0.1, position_embedding_type="rotary")
    model = tiny_model("Model", config)
    token_ids = make_batch("Model").inputs["input_ids"]
    exact = model(token_ids).last_hidden_state
    rough = model.to(dtype)(token_ids).last_hidden_state
    assert rough.dtype == dtype
    assert_close(rough.float(), exact, atol=0.2, rtol=0.1)


@pytest.mark.parametrize("positions", POSITIONS)
def test_compiles_without_graph_breaks(variant, positions):
    model = tiny_model("Model", tiny_config(variant, position_embedding_type=positions))
    inputs = make_batch("Model").inputs
    expected = model(**inputs).last_hidden_state
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    found = compiled(**inputs).last_hidden_state
    found.sum().backward()
    assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_starts_on_the_meta_device(variant, poisoned_memory):
    with torch.device("meta"):
        model = tiny_model("PreTraining", tiny_config(variant))
    assert all(parameter.is_meta for parameter in model.parameters())
    assert not list(model.buffers())
    model = model.to_empty(device="cpu")
    model.init_weights()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter).all(), name
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight


def test_counts_follow_the_formulas(variant):
    config = tiny_config(variant, num_hidden_layers=3)
    with torch.device("meta"):
        expected = config.build_attention_variant().parameter_formula()
    counted = count_parameters(config)
    assert counted.qkv == expected
    width = config.hidden_size
    with torch.device("meta"):
        attention = SharedQKVAttention(config)
    assert counted.attention_block == expected + (attention.self.context_width + 1) * width
    for length in (1, 7, 16):
        assert forward_flops_per_token(config, length) == pytest.approx(flops_formula(config, length), rel=1e-12)


def test_unknown_options_are_refused(variant):
    with pytest.raises(ValueError, match=r"unknown attention_options \['colour'\]") as caught:
        tiny_config(variant, attention_options={"colour": 1})
    assert variant in str(caught.value)


def test_is_what_the_registry_says(variant):
    assert isinstance(tiny_model("Model", tiny_config(variant)).encoder.attentions()[0].self, get_variant(variant))


def test_lora_trains_and_merges(variant):
    peft = pytest.importorskip("peft")
    model = tiny_model("SequenceClassification", tiny_config(variant))
    wrapped = peft.get_peft_model(
        model, peft.LoraConfig(target_modules="all-linear", task_type="SEQ_CLS", init_lora_weights=False)
    )
    batch = make_batch("SequenceClassification")
    adapted = [
        name for name, _ in wrapped.named_modules() if "attention.self" in name and name.endswith("lora_A.default")
    ]
    assert adapted, "LoRA found no Linear in the variant"
    wrapped(**batch.all()).loss.backward()
    assert all(p.grad is not None for n, p in wrapped.named_parameters() if "attention.self" in n and "lora_B" in n)
    before = wrapped.eval()(**batch.inputs).logits
    assert_close(wrapped.merge_and_unload()(**batch.inputs).logits, before, atol=1e-4, rtol=1e-4)
