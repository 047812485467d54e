"""Sequences of different lengths: nothing is lost, nothing leaks, little is padded."""

import pytest
import torch
from helpers import POSITIONS, VOCAB, tiny_config, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from sharedqkv.models.unpadding import LAYOUTS, batches_by_length, encode_sequences, packed_rows

LENGTHS = st.lists(st.integers(1, 60), max_size=60)


@given(LENGTHS, st.integers(1, 300), st.sampled_from([0.0, 0.05, 0.2]))
def test_batches_hold_all_within_the_bounds(lengths, max_tokens, max_padding):
    batches = batches_by_length(lengths, max_tokens, max_padding)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        longest, shortest = lengths[batch[0]], lengths[batch[-1]]
        assert longest == max(lengths[index] for index in batch)
        assert shortest >= (1 - max_padding) * longest
        assert len(batch) * longest <= max_tokens or len(batch) == 1


@given(LENGTHS, st.integers(60, 100))
def test_packed_rows_hold_all_and_no_two_would_fit_in_one(lengths, row_length):
    rows = packed_rows(lengths, row_length)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    used = sorted(sum(lengths[index] for index in row) for row in rows)
    assert all(tokens <= row_length for tokens in used)
    assert len(used) < 2 or used[0] + used[1] > row_length


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("with_types", [False, True])
def test_each_is_encoded_as_if_alone(layout, positions, with_types):
    model = tiny_model("Model", tiny_config("shared", position_embedding_type=positions)).fold()
    sequences = [torch.randint(1, VOCAB, (length,)).tolist() for length in (3, 16, 1, 7, 7, 15, 2)]
    types = [[place % 2 for place in range(len(sequence))] for sequence in sequences] if with_types else None
    encoded = encode_sequences(model, sequences, types, layout, max_tokens=40)
    assert len(encoded) == len(sequences)
    for index, (sequence, found) in enumerate(zip(sequences, encoded, strict=True)):
        own_types = None if types is None else torch.tensor([types[index]])
        alone = model(torch.tensor([sequence]), token_type_ids=own_types).last_hidden_state[0]
        assert_close(found, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_sequence_at_all(layout):
    assert encode_sequences(tiny_model("Model", tiny_config()), [], layout=layout) == []


def test_wrong_input_is_named():
    model = tiny_model("Model", tiny_config())
    with pytest.raises(ValueError, match="layout must be one of sorted, packed, not 'padded'"):
        encode_sequences(model, [[1]], layout="padded")
    with pytest.raises(ValueError, match="sequence 1 is empty"):
        encode_sequences(model, [[1], []])
    with pytest.raises(ValueError, match="max_tokens must be positive, not 0"):
        encode_sequences(model, [[1]], max_tokens=0)
    for wrong in (tiny_model("Model", tiny_config()).train(), tiny_model("MaskedLM", tiny_config())):
        with pytest.raises(ValueError, match="in evaluation mode"):
            encode_sequences(wrong, [[1]])
    with pytest.raises(ValueError, match="token_type_ids must be as many lists"):
        encode_sequences(model, [[1, 2]], [[0]])
    with pytest.raises(ValueError, match="17 tokens is longer than max_position_embeddings 16"):
        encode_sequences(model, [[1] * 17])
