"""The bare model: inputs, outputs, checkpoints that are damaged or foreign."""

import pytest
import torch
import transformers
from helpers import HEADS, make_batch, tiny_config, tiny_model
from safetensors.torch import load_file, save_file
from torch.testing import assert_close
from transformers import BertConfig, BertModel

from sharedqkv import SharedQKVForMaskedLM, SharedQKVModel
from sharedqkv.models import AUTO_CLASSES


def test_attentions_need_eager():
    model = tiny_model("Model", tiny_config(), "sdpa")
    inputs = make_batch("Model").inputs
    with pytest.raises(ValueError, match=r"'sdpa' never forms the attention weights; .*attn_implementation=\"eager\""):
        model(**inputs, output_attentions=True)
    model.set_attn_implementation("eager")
    attentions = model(**inputs, output_attentions=True).attentions
    assert [tuple(weights.shape) for weights in attentions] == [(2, 4, 7, 7)] * 2
    assert_close(attentions[0].sum(-1), torch.ones(2, 4, 7))
    assert not attentions[0][1, :, :, 4:].any(), "padding is attended to"


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_hidden_states(norm):
    model = tiny_model("Model", tiny_config(norm_placement=norm))
    inputs = make_batch("Model").inputs
    outputs = model(**inputs, output_hidden_states=True)
    assert len(outputs.hidden_states) == 3
    assert torch.equal(outputs.hidden_states[-1], outputs.last_hidden_state)
    assert model(**inputs).hidden_states is None
    assert isinstance(model(**inputs, return_dict=False), tuple)


def test_pre_norm_normalises_last():
    model = tiny_model("Model", tiny_config(norm_placement="pre"))
    torch.nn.init.ones_(model.encoder.LayerNorm.weight)
    torch.nn.init.zeros_(model.encoder.LayerNorm.bias)
    hidden = model(**make_batch("Model").inputs).last_hidden_state
    assert_close(hidden.mean(-1), torch.zeros(2, 7), atol=1e-5, rtol=0)
    assert_close(hidden.var(-1, unbiased=False), torch.ones(2, 7), atol=1e-3, rtol=0)


def test_rotary_has_no_position_table():
    with_table, without = (tiny_config(position_embedding_type=kind) for kind in ("absolute", "rotary"))
    difference = SharedQKVModel(with_table).num_parameters() - SharedQKVModel(without).num_parameters()
    assert difference == with_table.max_position_embeddings * with_table.hidden_size


@pytest.mark.parametrize("positions", ["absolute", "rotary"])
def test_order_of_words_matters(positions):
    model = tiny_model("Model", tiny_config("shared", position_embedding_type=positions))
    forwards = torch.tensor([[5, 6, 7, 8]])
    one, other = (model(ids).last_hidden_state for ids in (forwards, forwards.flip(1)))
    assert not torch.allclose(one, other.flip(1), atol=1e-3)


def test_embeddings_in_place_of_ids():
    model = tiny_model("Model", tiny_config())
    ids = make_batch("Model").inputs["input_ids"]
    by_words = model(inputs_embeds=model.get_input_embeddings()(ids)).last_hidden_state
    assert torch.equal(by_words, model(ids).last_hidden_state)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ({}, ValueError, "give exactly one of input_ids and inputs_embeds"),
        (
            {"input_ids": torch.ones(1, 17, dtype=torch.long)},
            ValueError,
            "17 tokens is longer than max_position_embeddings 16",
        ),
        ({"input_ids": torch.ones(1, 4)}, TypeError, "input_ids must be int64 or int32, not torch.float32"),
        ({"input_ids": torch.ones(4, dtype=torch.long)}, ValueError, r"must have 2 dimensions, not shape \(4,\)"),
        (
            {"inputs_embeds": torch.ones(1, 4, 32, dtype=torch.long)},
            TypeError,
            "inputs_embeds must be floating point, not torch.int64",
        ),
    ],
)
def test_bad_inputs_are_refused(inputs, error, message):
    with pytest.raises(error, match=message):
        tiny_model("Model", tiny_config())(**inputs)


def test_packing_needs_a_backend_that_keeps_documents_apart(monkeypatch):
    model = tiny_model("Model", tiny_config())
    monkeypatch.setattr(model.config, "_attn_implementation_internal", "flash_attention_2")
    with pytest.raises(ValueError, match=r"document_ids need a backend .* eager, .*, fused, not 'flash_att"):
        model(torch.full((1, 4), 5), document_ids=torch.tensor([[0, 0, 1, 1]]))


def test_flash_attention_refuses_queries_wider_than_values(monkeypatch):
    model = tiny_model("Model", tiny_config("overlapping", position_embedding_type="rotary"))
    monkeypatch.setattr(model.config, "_attn_implementation_internal", "flash_attention_2")
    with pytest.raises(ValueError, match=r"'flash_attention_2' needs values as wide .* 8 and 16 .*\(\"sdpa\"\)"):
        model(torch.full((1, 4), 5))


def test_flex_attention_agrees():
    config = tiny_config("shared", hidden_size=64, position_embedding_type="rotary")
    model = tiny_model("Model", config, "sdpa")
    batch = make_batch("Model")
    ids, mask = batch.inputs["input_ids"], batch.inputs["attention_mask"]
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 2, 2, 2]])
    with torch.no_grad():
        expected = [model(ids, mask).last_hidden_state, model(ids, document_ids=documents).last_hidden_state]
        model.set_attn_implementation("flex_attention")
        found = [model(ids, mask).last_hidden_state, model(ids, document_ids=documents).last_hidden_state]
    assert_close(found[0][mask.bool()], expected[0][mask.bool()], atol=1e-5, rtol=1e-4)
    assert_close(found[1], expected[1], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("auto_class", AUTO_CLASSES, ids=lambda auto_class: auto_class.__name__)
def test_auto_classes(auto_class, tmp_path):
    AUTO_CLASSES[auto_class](tiny_config("shared")).save_pretrained(tmp_path)
    assert type(auto_class.from_pretrained(tmp_path)) is AUTO_CLASSES[auto_class]


def test_resized_embeddings():
    model = tiny_model("MaskedLM", tiny_config())
    before = model(torch.tensor([[5, 6]])).logits
    model.resize_token_embeddings(44)
    after = model(torch.tensor([[5, 43]])).logits
    assert after.shape[-1] == model.config.vocab_size == 44
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert model.cls.predictions.bias.shape == (44,)
    assert_close(model(torch.tensor([[5, 6]])).logits[..., :40], before)


def test_cut_off_weights_are_named(tmp_path):
    SharedQKVModel(tiny_config()).save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(OSError, match=r"model.safetensors: the weights are damaged or cut off .* again"):
        SharedQKVModel.from_pretrained(tmp_path)


def test_broken_config_is_named(tmp_path):
    SharedQKVModel(tiny_config()).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(OSError, match=r"config\.json"):
        SharedQKVModel.from_pretrained(tmp_path)


def test_foreign_weights_are_refused(tmp_path):
    SharedQKVModel(tiny_config()).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    save_file({f"transformer.{n}": t for n, t in weights.items()}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(OSError, match=r"no encoder weight of SharedQKVModel is in this checkpoint.*transformer\."):
        SharedQKVModel.from_pretrained(tmp_path)


def test_only_safetensors(tmp_path):
    model = SharedQKVModel(tiny_config())
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        SharedQKVModel.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="use_safetensors=False is refused"):
        SharedQKVModel.from_pretrained(tmp_path, use_safetensors=False)


def test_wrong_shapes_are_refused(tmp_path):
    SharedQKVModel(tiny_config()).save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="mismatch"):
        SharedQKVModel.from_pretrained(tmp_path, intermediate_size=96)


def test_the_encoder_of_a_model_with_a_head_loads_alone(tmp_path):
    with_head = tiny_model("MaskedLM", tiny_config("shared"))
    with_head.save_pretrained(tmp_path)
    encoder = SharedQKVModel.from_pretrained(tmp_path, add_pooling_layer=False)
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(encoder(ids).last_hidden_state, with_head.bert(ids).last_hidden_state)


def test_a_head_goes_onto_a_bare_encoder(tmp_path):
    bert = BertModel(BertConfig(vocab_size=40, hidden_size=32, num_attention_heads=4, num_hidden_layers=1))
    bert.save_pretrained(tmp_path)
    model = SharedQKVForMaskedLM.from_pretrained(tmp_path)
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, bert.embeddings.word_embeddings.weight)


@pytest.mark.parametrize("head", HEADS)
def test_no_warning_from_our_own_use_of_transformers(head, caplog):
    transformers.utils.logging.enable_propagation()
    try:
        tiny_model(head, tiny_config("shared"))(**make_batch(head).all())
    finally:
        transformers.utils.logging.disable_propagation()
    assert not caplog.records


def test_full_rows_reach_the_fused_kernels_when_compiled(monkeypatch):
    """A mask, even one that hides nothing, keeps SDPA from them."""
    model = tiny_model("Model", tiny_config())
    graphs = []

    def look(graph, inputs):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    torch.compile(model, backend=look, fullgraph=True)(torch.randint(5, 40, (2, 8)))
    calls = [n for g in graphs for n in g.graph.nodes if "scaled_dot_product_attention" in str(n.target)]
    assert len(calls) == 2
    assert all(call.kwargs["attn_mask"] is None for call in calls)
    assert not any("mask" in str(n.name) for g in graphs for n in g.graph.nodes)
