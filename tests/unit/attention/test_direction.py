"""Can a head with rotary positions look at the word before, whatever it is? Not where one tensor makes q and k."""

import pytest
import torch
from torch.testing import assert_close

from sharedqkv.attention.base import Geometry
from sharedqkv.attention.registry import build_variant
from sharedqkv.attention.rotary import plain_queries_keys_values, rotation_for
from sharedqkv.models.specs import parse_spec

LENGTH = 7
HERE = LENGTH // 2


def make_variant(spec):
    torch.manual_seed(0)
    name, options, _ = parse_spec(spec)
    variant = build_variant(name, Geometry(width=32, num_heads=4), options).double()
    with torch.no_grad():
        for parameter in variant.parameters():
            torch.nn.init.normal_(parameter)
        variant.init_weights(0.02)  # diagonals and their like as they start
    return variant


def scores_by_distance(variant):
    """Of every head, from the token in the middle of a row of equal words, so that distance alone tells them apart."""
    with torch.no_grad():
        words_BLD = torch.randn(1, 1, 32, dtype=torch.float64).expand(1, LENGTH, 32)
        rotation = rotation_for(torch.arange(LENGTH)[None], variant.head_size, 100.0, torch.float64)
        q_BHLK, k_BGLK, _ = plain_queries_keys_values(variant(words_BLD), rotation)
        return (q_BHLK[0, :, HERE, None] * k_BGLK[0]).sum(-1)


@pytest.mark.parametrize("name", ["symmetric", "tied", "shared", "pairwise:init=identity"])
def test_before_and_after_are_alike_to_one_tensor_and_nothing_draws_more_than_the_token_itself(name):
    scores_HL = scores_by_distance(make_variant(name))
    assert_close(scores_HL, scores_HL.flip(-1))
    assert (scores_HL.argmax(-1) == HERE).all()


@pytest.mark.parametrize(
    "name", ["standard", "narrow", "grouped", "key_value", "rolled", "low_rank", "pairwise", "overlapping"]
)
def test_others_can_tell_before_from_after(name):
    assert tell_apart(scores_by_distance(make_variant(name))).all()


def test_random_signs_tell_them_apart_in_most_heads():
    assert tell_apart(scores_by_distance(make_variant("shared:init=signs"))).float().mean() > 0.5


def tell_apart(scores_HL):
    return (scores_HL - scores_HL.flip(-1)).abs().amax(-1) > 0.01 * scores_HL.abs().amax(-1)


@pytest.mark.parametrize(("within_a_pair", "alike"), [(1.0, True), (3.0, False)])
def test_diagonals_of_shared_help_only_where_their_ratio_differs_within_a_rotated_pair(within_a_pair, alike):
    variant = make_variant("shared")
    first_half = torch.arange(variant.context_width) % variant.head_size < variant.head_size // 2
    with torch.no_grad():
        variant.key_scale.normal_()
        variant.query_scale.copy_(2 * variant.key_scale * torch.where(first_half, 1.0, within_a_pair))
    scores_HL = scores_by_distance(variant)
    assert torch.allclose(scores_HL, scores_HL.flip(-1)) is alike
