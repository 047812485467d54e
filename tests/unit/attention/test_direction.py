"""Can a head with rotary positions look at the word before, whatever it is? Not where one tensor makes q and k."""

import pytest
import torch
from torch.testing import assert_close

from sharedqkv.attention.base import Geometry
from sharedqkv.attention.registry import build_variant
from sharedqkv.attention.rotary import plain_queries_keys_values, rotation_for

LENGTH = 7
HERE = LENGTH // 2


def scores_by_distance(name, **options):
    """Of every head, from the token in the middle of a row of equal words, so that distance alone tells them apart."""
    torch.manual_seed(0)
    variant = build_variant(name, Geometry(width=32, num_heads=4), options).double()
    with torch.no_grad():
        for parameter in variant.parameters():
            torch.nn.init.normal_(parameter)
        variant.init_weights(0.02)  # diagonals and their like as they start
        words_BLD = torch.randn(1, 1, 32, dtype=torch.float64).expand(1, LENGTH, 32)
        rotation = rotation_for(torch.arange(LENGTH)[None], variant.head_size, 100.0, torch.float64)
        q_BHLK, k_BGLK, _ = plain_queries_keys_values(variant(words_BLD), rotation)
        return (q_BHLK[0, :, HERE, None] * k_BGLK[0]).sum(-1)


@pytest.mark.parametrize("name", ["symmetric", "tied", "shared"])
def test_before_and_after_are_alike_to_one_tensor_and_nothing_draws_more_than_the_token_itself(name):
    scores_HL = scores_by_distance(name)
    assert_close(scores_HL, scores_HL.flip(-1))
    assert (scores_HL.argmax(-1) == HERE).all()


@pytest.mark.parametrize("name", ["standard", "narrow", "grouped", "key_value", "rolled", "low_rank"])
def test_others_can_tell_before_from_after(name):
    scores_HL = scores_by_distance(name)
    assert ((scores_HL - scores_HL.flip(-1)).abs().amax(-1) > 0.01 * scores_HL.abs().amax(-1)).all()


def test_signs_on_the_diagonal_tell_them_apart_too():
    scores_HL = scores_by_distance("shared", init="signs")
    assert not torch.allclose(scores_HL, scores_HL.flip(-1))
