import pytest
import torch
from torch.testing import assert_close

from sharedqkv.attention.neighbours import BASE, STRENGTH, neighbour_biases
from sharedqkv.attention.reference import rotate_as_complex


@pytest.mark.parametrize("head_size", [64, 128])
def test_biases_alone_draw_each_head_to_its_own_neighbour(head_size):
    positions = torch.arange(41)
    queries_HK, keys_K = neighbour_biases(8, head_size)
    keys = rotate_as_complex(keys_K.expand(41, -1), positions, BASE)
    for query_K, offset in zip(queries_HK, (1, -1, 2, -2, 3, -3, 4, -4), strict=True):
        logits = keys @ rotate_as_complex(query_K[None], positions[20:21], BASE)[0] / head_size**0.5
        assert logits.argmax() == 20 + offset
        assert_close(logits.max(), torch.tensor(STRENGTH), rtol=1e-4, atol=0)
        assert logits.sort().values[-2] < STRENGTH - 0.5
        assert logits.mean().abs() < 0.5, "it does not swing around 0"


def test_the_odd_channel_has_none():
    queries_HK, keys_K = neighbour_biases(2, 9)
    assert queries_HK.shape == (2, 9)
    assert keys_K.shape == (9,)
    assert not queries_HK[:, -1].any()
    assert keys_K[:4].all()
