"""The algebra of the paper's variant."""

import pytest
import torch
from attention_helpers import build, hidden_states, is_symmetric, logits, rotation
from helpers import tiny_config
from torch.testing import assert_close

from sharedqkv.attention import Geometry, build_variant
from sharedqkv.attention.rotary import plain_queries_keys_values
from sharedqkv.models import SharedQKVModel


def with_random_diagonals(**options):
    variant = build("shared", **options)
    with torch.no_grad():
        for scale in (variant.query_scale, variant.key_scale, variant.value_scale):
            scale.normal_()
    return variant


def test_diagonals_start_at_one():
    variant = build("shared")
    assert all((scale == 1).all() for scale in (variant.query_scale, variant.key_scale, variant.value_scale))


@pytest.mark.parametrize("name", ["shared", "rolled"])
def test_queries_may_start_with_random_signs(name):
    model = SharedQKVModel(tiny_config(name, attention_options={"init": "signs"}))
    first, second = (attention.self for attention in model.encoder.attentions()[:2])
    assert set(first.query_scale.tolist()) == {-1.0, 1.0}
    assert not torch.equal(first.query_scale, second.query_scale)
    assert (first.key_scale == 1).all()
    assert (first.value_scale == 1).all()
    with pytest.raises(ValueError, match="'init' must be one of ones, signs, not 'zeros'"):
        build_variant(name, Geometry(24, 3), {"init": "zeros"})


def test_signs_of_a_checkpoint_stay(tmp_path):
    model = SharedQKVModel(tiny_config("shared", attention_options={"init": "signs"}))
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    for before, after in zip(model.encoder.attentions(), loaded.encoder.attentions(), strict=True):
        assert torch.equal(before.self.query_scale, after.self.query_scale)


def test_bias_is_off_unless_asked_for():
    assert build("shared").shared.bias is None
    assert build("shared", bias=True).shared.bias is not None
    with pytest.raises(ValueError, match="'bias' must be true or false, not 'yes'"):
        build_variant("shared", Geometry(24, 3), {"bias": "yes"})


def test_keys_and_values_stay_one_tensor_without_rotation():
    q, k, v = plain_queries_keys_values(with_random_diagonals()(hidden_states()), None)
    assert k is v
    assert q is not k


def test_the_fold_equals_three_diagonals():
    variant, hidden = with_random_diagonals(bias=True), hidden_states()
    projected = variant(hidden)
    q, k, v = plain_queries_keys_values(projected, None)
    folded = torch.softmax(q @ k.transpose(-1, -2), -1) @ v * projected.output_scale_HK[:, None]
    s = variant.split_heads(variant.shared(hidden))
    dq, dk, dv = (
        variant.per_head(scale)[:, None] for scale in (variant.query_scale, variant.key_scale, variant.value_scale)
    )
    literal = torch.softmax((s * dq) @ (s * dk).transpose(-1, -2), -1) @ (s * dv)
    assert_close(folded, literal)


def test_logits_are_symmetric_with_absolute_positions_only():
    variant, hidden = with_random_diagonals(), hidden_states()
    assert is_symmetric(logits(variant, hidden))
    assert not is_symmetric(logits(variant, hidden, rotation(8)))


def test_under_rotation_the_diagonals_do_not_fold():
    """Only the sides of dq and dk differ between the two; with a rotation that matters."""
    variant, hidden, turn = with_random_diagonals(), hidden_states(), rotation(8)
    right = logits(variant, hidden, turn)
    projected = variant(hidden)
    projected.query_scale_HK, projected.key_scale_HK = projected.query_scale_HK * projected.key_scale_HK, None
    q, k, _ = plain_queries_keys_values(projected, turn)
    assert not torch.allclose(q @ k.transpose(-1, -2), right)
