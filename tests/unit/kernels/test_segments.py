"""Padding and packing as ids."""

import torch

from sharedqkv.kernels import segments_of

MASK = torch.tensor([[1, 1, 0], [1, 1, 1]])
DOCUMENTS = torch.tensor([[7, 8, 8], [-1, -1, 2]])


def seen(segments, row):
    return segments.visible()[row, 0].int().tolist()


def test_nothing_given_nothing_hidden():
    assert segments_of(None, None) is None


def test_padding_is_seen_by_none_and_sees_the_rest():
    segments = segments_of(MASK, None)
    assert seen(segments, 0) == [[1, 1, 0]] * 3
    assert seen(segments, 1) == [[1, 1, 1]] * 3


def test_documents_see_their_own():
    segments = segments_of(None, DOCUMENTS)
    assert seen(segments, 0) == [[1, 0, 0], [0, 1, 1], [0, 1, 1]]
    assert seen(segments, 1) == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


def test_both_at_once():
    assert seen(segments_of(MASK.bool(), DOCUMENTS), 0) == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]


def test_ids_are_what_the_kernels_take():
    for ids in segments_of(MASK, DOCUMENTS):
        assert ids.dtype == torch.int32
        assert ids.shape == MASK.shape
