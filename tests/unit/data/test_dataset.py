"""Batches from shards: everything a model is told about a row."""

import numpy as np
import pytest
import torch
from helpers import tiny_config, tiny_model
from pretraining_helpers import make_corpus
from torch.testing import assert_close
from torch.utils.data import DataLoader
from transformers import AutoTokenizer

from sharedqkv.data.dataset import MaskedBatches, collate
from sharedqkv.data.masking import Masking, Vocabulary
from sharedqkv.data.shards import ShardedRows


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    return {name: make_corpus(tmp_path_factory.mktemp(name), name) for name in ("chunks", "packed", "pairs")}


def batches(corpus, share=0.15, shuffle_seed=0, num_samples=10**6) -> MaskedBatches:
    vocabulary = Vocabulary.of(AutoTokenizer.from_pretrained(corpus / "tokenizer"))
    return MaskedBatches(ShardedRows.open(corpus, "train"), Masking(vocabulary, 0, share), num_samples, shuffle_seed)


def test_full_rows_have_no_mask(corpora):
    batch = batches(corpora["chunks"]).__getitems__([0, 1, 2])
    assert set(batch) == {"input_ids", "masked_positions", "labels"}
    assert batch["input_ids"].shape == (3, 32)


def test_packed_rows_say_where_documents_begin(corpora):
    data = batches(corpora["packed"])
    batch = data.__getitems__(list(range(8)))
    tokens = np.stack([data.rows[row] for row in range(len(data.rows))])
    assert (tokens == data.rows.manifest.cls_id).sum(axis=1).max() > 1, "no row holds two documents"
    begins = batch["document_ids"].diff(dim=1) == 1
    assert torch.equal(begins, (batch["input_ids"] == data.rows.manifest.cls_id)[:, 1:])
    padding = batch["attention_mask"] == 0
    assert torch.equal(padding, batch["input_ids"] == data.rows.manifest.pad_id)


def test_a_packed_document_is_what_it_is_alone(corpora):
    data = batches(corpora["packed"])
    batch = data.__getitems__(list(range(16)))
    vocab = data.rows.manifest.vocab_size
    model = tiny_model("Model", tiny_config("shared", vocab_size=vocab, max_position_embeddings=32))
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "document_ids")}
    with torch.no_grad():
        together = model(**inputs).last_hidden_state
        seen = 0
        for row in range(16):
            for document in inputs["document_ids"][row].unique():
                mine = (inputs["document_ids"][row] == document) & inputs["attention_mask"][row].bool()
                alone = model(inputs["input_ids"][row, mine][None]).last_hidden_state[0]
                assert_close(together[row, mine], alone, atol=1e-5, rtol=1e-5)
                seen += 1
    assert seen > 16


def test_pairs_have_two_segments_and_a_label(corpora):
    data = batches(corpora["pairs"])
    batch = data.__getitems__(list(range(8)))
    separator = data.rows.manifest.sep_id
    for row in range(8):
        ids, types = batch["input_ids"][row], batch["token_type_ids"][row]
        first, second = (ids == separator).nonzero().flatten().tolist()
        assert not types[: first + 1].any()
        assert types[first + 1 : second + 1].all()
        assert not types[second + 1 :].any()
    assert set(batch["next_sentence_label"].tolist()) <= {0, 1}


def test_without_a_shuffle_rows_come_in_order_with_fixed_masks(corpora):
    data = batches(corpora["chunks"], shuffle_seed=None, num_samples=4)
    batch = data.__getitems__([0, 1, 2, 3])
    restored = batch["input_ids"].scatter(1, batch["masked_positions"], batch["labels"])
    assert torch.equal(restored, torch.from_numpy(np.stack([data.rows[row] for row in range(4)])))
    again = data.__getitems__([2])
    assert torch.equal(again["input_ids"][0], batch["input_ids"][2])


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_give_the_same_batches_whatever_their_workers(corpora, workers):
    data = batches(corpora["packed"], num_samples=40)
    loaded = list(DataLoader(data, 8, collate_fn=collate, num_workers=workers))
    assert len(loaded) == 5
    for number, batch in enumerate(loaded):
        expected = data.__getitems__(list(range(8 * number, 8 * number + 8)))
        assert all(torch.equal(batch[name], expected[name]) for name in expected)
