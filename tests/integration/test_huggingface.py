"""Where Hugging Face models are used: pipelines, tokenizers, Trainer, compile with inductor, LoRA by name."""

import pytest
import torch
from helpers import HEADS, make_batch, run_with_gradients, tiny_config, tiny_model
from torch.testing import assert_close
from transformers import AutoTokenizer, BertTokenizer, pipeline

from sharedqkv import variant_names

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "cat", "dog", "sat", "ran", "fast", "home", "."]
LORA_TARGETS = {
    "standard": ["query", "value"],
    "narrow": ["query", "value"],
    "symmetric": ["query", "value"],
    "pairwise": ["query", "value"],
    "shared": ["shared"],
    "tied": ["shared"],
    "rolled": ["shared"],
    "overlapping": ["shared"],
    "key_value": ["query", "key_value"],
    "grouped": ["query", "value"],
    "low_rank": ["query.up", "value.up"],
}


@pytest.fixture
def folder(tmp_path):
    BertTokenizer(vocab={word: index for index, word in enumerate(WORDS)}).save_pretrained(tmp_path)
    return tmp_path


def save(head, folder):
    tiny_model(head, tiny_config("shared", vocab_size=len(WORDS))).save_pretrained(folder)


def test_fill_mask(folder):
    save("MaskedLM", folder)
    answers = pipeline("fill-mask", model=str(folder))("the cat [MASK] home .")
    assert len(answers) == 5
    assert all(answer["token_str"] in WORDS for answer in answers)
    assert answers[0]["score"] >= answers[1]["score"] > 0


def test_text_classification(folder):
    save("SequenceClassification", folder)
    (answers,) = pipeline("text-classification", model=str(folder), top_k=None)(["the dog ran ."])
    assert {answer["label"] for answer in answers} == {"LABEL_0", "LABEL_1", "LABEL_2"}
    assert sum(answer["score"] for answer in answers) == pytest.approx(1, abs=1e-5)


def test_token_classification(folder):
    save("TokenClassification", folder)
    answers = pipeline("token-classification", model=str(folder))("the dog ran .")
    assert [answer["word"] for answer in answers if answer["entity"]] == ["the", "dog", "ran", "."]


def test_feature_extraction(folder):
    save("Model", folder)
    features = pipeline("feature-extraction", model=str(folder))("the dog ran .")
    assert torch.tensor(features).shape == (1, 6, 32)


def test_tokenizer_from_a_bare_vocabulary(tmp_path):
    """A folder with a vocab.txt alone, as Google published BERT."""
    tiny_config().save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.convert_ids_to_tokens(tokenizer("the Cat")["input_ids"]) == ["[CLS]", "the", "cat", "[SEP]"]


@pytest.mark.parametrize("name", LORA_TARGETS)
def test_documented_lora_targets(name):
    peft = pytest.importorskip("peft")
    model = tiny_model("Model", tiny_config(name))
    targets = LORA_TARGETS[name]
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules=targets, r=2))
    adapted = [path for path, _ in wrapped.named_modules() if path.endswith("lora_A.default")]
    assert len(adapted) == len(targets) * model.config.num_hidden_layers
    wrapped(**make_batch("Model").inputs).last_hidden_state.sum().backward()


def test_every_variant_has_documented_lora_targets():
    assert set(LORA_TARGETS) == set(variant_names())


@pytest.mark.parametrize(
    ("name", "positions"), [("standard", "absolute"), ("shared", "absolute"), ("shared", "rotary")]
)
def test_inductor(name, positions):
    model = tiny_model("MaskedLM", tiny_config(name, position_embedding_type=positions))
    batch = make_batch("MaskedLM", padded=False)
    positions_of_labels = torch.tensor([[0, 2, 5], [1, 3, 4]])
    batch.labels = {"labels": torch.randint(5, 40, (2, 3)), "masked_positions": positions_of_labels}
    expected, expected_gradients = run_with_gradients(model, "MaskedLM", batch)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True)
    model.zero_grad()
    loss = compiled(**batch.all()).loss
    loss.backward()
    assert_close(loss, expected.loss, atol=1e-5, rtol=1e-5)
    for path, parameter in model.named_parameters():
        assert_close(parameter.grad, expected_gradients[path], atol=1e-4, rtol=1e-4)


def test_packed_rows_compile():
    model = tiny_model("Model", tiny_config("shared"))
    ids, documents = torch.randint(5, 40, (2, 8)), torch.tensor([[0] * 3 + [1] * 5, [0] * 6 + [1] * 2])
    expected = model(ids, document_ids=documents).last_hidden_state
    torch._dynamo.reset()
    found = torch.compile(model, backend="aot_eager", fullgraph=True)(ids, document_ids=documents).last_hidden_state
    assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_gradient_checkpointing_compiles(head):
    model = tiny_model(head, tiny_config("shared")).train()
    model.gradient_checkpointing_enable()
    batch = make_batch(head)
    torch._dynamo.reset()
    compiled = torch.compile(model.base_model, backend="aot_eager", fullgraph=True)
    inputs = {name: t.flatten(0, -2) for name, t in batch.inputs.items()}
    compiled(**inputs).last_hidden_state.sum().backward()
