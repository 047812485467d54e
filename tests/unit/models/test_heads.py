"""The MLM head runs on masked tokens only, and every head's loss keeps its promise."""

import pytest
import torch
from helpers import make_batch, tiny_config, tiny_model
from torch.testing import assert_close

import sharedqkv.models.words as words


def masked_batch():
    """Rows with different numbers of labels, one of them with none."""
    batch = make_batch("MaskedLM", batch=3, padded=False)
    labels = torch.full((3, 7), -100)
    labels[0, [1, 4, 5]] = torch.tensor([8, 9, 10])
    labels[2, 6] = 11
    return batch.inputs, labels


def full_loss(model, inputs, labels):
    logits = model(**inputs).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def test_without_labels_all_tokens_have_logits():
    inputs, _ = masked_batch()
    outputs = tiny_model("MaskedLM", tiny_config())(**inputs)
    assert outputs.logits.shape == (3, 7, 40)
    assert outputs.loss is None
    assert outputs.masked_positions is None


def test_with_labels_only_masked_tokens_have_logits():
    model = tiny_model("MaskedLM", tiny_config("shared"))
    inputs, labels = masked_batch()
    everywhere = model(**inputs).logits
    outputs = model(**inputs, labels=labels)
    assert outputs.logits.shape == (3, 3, 40), "as many as the fullest row has"
    assert outputs.masked_positions[0].tolist() == [1, 4, 5]
    assert outputs.masked_positions[2, 0] == 6
    for row in range(3):
        assert_close(outputs.logits[row], everywhere[row, outputs.masked_positions[row]])
    assert_close(outputs.loss, full_loss(model, inputs, labels))


def test_compact_labels_give_the_same_loss_and_gradient():
    model = tiny_model("MaskedLM", tiny_config("shared"))
    inputs, labels = masked_batch()
    positions = torch.tensor([[1, 4, 5, 0], [0, 0, 0, 0], [6, 0, 0, 0]])
    compact = torch.tensor([[8, 9, 10, -100], [-100] * 4, [11, -100, -100, -100]])
    losses, gradients = [], []
    for arguments in ({"labels": labels}, {"labels": compact, "masked_positions": positions}):
        model.zero_grad()
        losses.append(model(**inputs, **arguments).loss)
        losses[-1].backward()
        gradients.append(model.bert.embeddings.word_embeddings.weight.grad.clone())
    assert_close(*losses)
    assert_close(*gradients)


def test_the_head_sees_no_more_than_it_must(monkeypatch):
    model = tiny_model("MaskedLM", tiny_config())
    inputs, labels = masked_batch()
    seen = []
    inner = words.WordPredictions.forward
    monkeypatch.setattr(
        words.WordPredictions, "forward", lambda self, hidden, **_: (seen.append(hidden.shape), inner(self, hidden))[1]
    )
    model(**inputs, labels=labels)
    assert seen == [(3, 3, 32)]


def test_no_label_at_all_is_a_loss_of_zero():
    model = tiny_model("MaskedLM", tiny_config())
    inputs, labels = masked_batch()
    loss = model(**inputs, labels=torch.full_like(labels, -100)).loss
    assert loss == 0


@pytest.mark.parametrize("head", ["MaskedLM", "PreTraining"])
def test_compiles_with_a_fixed_count(head):
    model = tiny_model(head, tiny_config("shared"))
    inputs, _ = masked_batch()
    arguments = {
        "masked_positions": torch.tensor([[1, 4], [2, 3], [6, 0]]),
        "labels": torch.tensor([[8, 9], [5, 6], [11, -100]]),
        "num_items_in_batch": torch.tensor(5),
    }
    if head == "PreTraining":
        arguments["next_sentence_label"] = torch.tensor([0, 1, 0])
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert_close(compiled(**inputs, **arguments).loss, model(**inputs, **arguments).loss)


@pytest.mark.parametrize("head", ["MaskedLM", "PreTraining"])
def test_the_loss_alone_is_the_same_with_words_that_do_not_exist(head, monkeypatch):
    """On a GPU the 40 words become 64: same loss and gradients, and no logits that tell of it."""
    model = tiny_model(head, tiny_config("shared"))
    inputs, labels = masked_batch()
    losses, gradients, widths = [], [], []
    linear = torch.nn.functional.linear
    monkeypatch.setattr(
        torch.nn.functional, "linear", lambda *a: (made := linear(*a), widths.append(made.shape[-1]))[0]
    )
    for padded in (False, True):
        monkeypatch.setattr(words, "padding_is_faster", lambda hidden, padded=padded: padded)
        model.zero_grad()
        outputs = model(**inputs, labels=labels, loss_only=True)
        assert [name for name in outputs if "logits" in name] == []
        outputs.loss.backward()
        losses.append(outputs.loss.detach())
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
        assert (64 in widths) == padded
    assert_close(losses[0], model(**inputs, labels=labels).loss.detach(), rtol=0, atol=0)
    assert_close(*losses)
    assert_close(*gradients)


def test_the_loss_alone_needs_labels():
    inputs, _ = masked_batch()
    with pytest.raises(ValueError, match="loss_only needs the labels"):
        tiny_model("MaskedLM", tiny_config())(**inputs, loss_only=True)


def test_a_decoder_that_is_watched_is_called(monkeypatch):
    monkeypatch.setattr(words, "padding_is_faster", lambda hidden: True)
    model = tiny_model("MaskedLM", tiny_config())
    inputs, labels = masked_batch()
    seen = []
    model.cls.predictions.decoder.register_forward_hook(lambda *args: seen.append(args[-1].shape[-1]))
    model(**inputs, labels=labels, loss_only=True)
    assert seen == [40]


def test_compiles_with_labels_alone():
    model = tiny_model("MaskedLM", tiny_config("shared"))
    inputs, labels = masked_batch()
    torch._dynamo.reset()
    outputs = torch.compile(model, backend="aot_eager", fullgraph=True)(**inputs, labels=labels)
    assert outputs.logits.shape == (3, 7, 40)
    assert_close(outputs.loss, full_loss(model, inputs, labels))


def test_mismatched_labels_are_refused():
    model = tiny_model("MaskedLM", tiny_config())
    inputs, labels = masked_batch()
    with pytest.raises(ValueError, match=r"labels of shape \(3, 5\) do not fit input of shape \(3, 7\)"):
        model(**inputs, labels=labels[:, :5])
    with pytest.raises(ValueError, match=r"labels \(3, 7\) and masked_positions \(3, 2\) must have the same shape"):
        model(**inputs, labels=labels, masked_positions=torch.zeros(3, 2, dtype=torch.long))


def test_loss_is_a_sum_over_the_items_of_the_step():
    model = tiny_model("MaskedLM", tiny_config())
    inputs, labels = masked_batch()
    mean = model(**inputs, labels=labels).loss
    for items in (16, torch.tensor(16)):
        assert_close(model(**inputs, labels=labels, num_items_in_batch=items).loss, mean * 4 / 16)


def test_next_sentence_loss_is_the_plain_mean_for_equal_rows():
    model = tiny_model("PreTraining", tiny_config())
    inputs, _ = masked_batch()
    labels = torch.full((3, 7), -100)
    labels[:, 2:4] = 9
    arguments = {**inputs, "labels": labels, "next_sentence_label": torch.tensor([0, 1, 1])}
    assert_close(model(**arguments, num_items_in_batch=torch.tensor(6)).loss, model(**arguments).loss)


def test_next_sentence_alone():
    model = tiny_model("PreTraining", tiny_config())
    inputs, _ = masked_batch()
    outputs = model(**inputs, next_sentence_label=torch.tensor([0, 1, 1]))
    assert_close(
        outputs.loss, torch.nn.functional.cross_entropy(outputs.seq_relationship_logits, torch.tensor([0, 1, 1]))
    )
    assert outputs.prediction_logits.shape == (3, 7, 40)


def test_answers_outside_the_window_do_not_count():
    model = tiny_model("QuestionAnswering", tiny_config())
    inputs = make_batch("QuestionAnswering", padded=False).inputs
    some = model(**inputs, start_positions=torch.tensor([1, 99]), end_positions=torch.tensor([2, 99])).loss
    alone = {name: tensor[:1] for name, tensor in inputs.items()}
    assert_close(some, model(**alone, start_positions=torch.tensor([1]), end_positions=torch.tensor([2])).loss)


def test_classifier_dropout_follows_the_config():
    assert tiny_model("SequenceClassification", tiny_config(classifier_dropout=0.4)).dropout.p == 0.4
    assert tiny_model("TokenClassification", tiny_config(hidden_dropout_prob=0.2)).dropout.p == 0.2


def test_choices_need_their_own_dimension():
    with pytest.raises(ValueError, match=r"are \(batch, choices, length\), not \(2, 7\)"):
        tiny_model("MultipleChoice", tiny_config())(torch.full((2, 7), 5))
