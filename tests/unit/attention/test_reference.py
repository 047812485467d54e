"""The reference is held to the papers' formulas by hand where they are short, and to its own rules."""

import pytest
import torch
from attention_helpers import build, hidden_states
from torch.testing import assert_close

from sharedqkv.attention import reference, register_variant, registry, variant_names
from sharedqkv.attention.reference import reference_attention, rotate_as_complex
from sharedqkv.attention.rotary import rotate, rotation_for


def test_every_variant_has_one():
    assert set(reference._FORMULAS) >= set(variant_names())


def test_one_token_attends_to_itself():
    variant, hidden = build("shared"), hidden_states()[:, :1]
    assert_close(reference_attention("shared", variant, hidden), variant.shared(hidden))


def test_two_tokens_by_hand():
    variant = build("tied", width=2, num_heads=1)
    hidden = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]], dtype=torch.float64)
    a, b = variant.shared(hidden)[0]
    weight = torch.sigmoid(((a @ a) - (a @ b)) / 2**0.5)
    assert_close(reference_attention("tied", variant, hidden)[0, 0], weight * a + (1 - weight) * b)


def test_what_is_not_visible_does_not_count():
    variant, hidden = build("standard"), hidden_states()
    visible = torch.ones(2, 5, 5, dtype=torch.bool)
    visible[:, :, 3:] = False
    assert_close(
        reference_attention("standard", variant, hidden, visible)[:, :3],
        reference_attention("standard", variant, hidden[:, :3]),
    )


def test_complex_rotation_equals_the_real_one():
    states, positions = torch.randn(1, 1, 5, 8, dtype=torch.float64), torch.tensor([[3, 0, 7, 1, 100]])
    turned = rotate(states, rotation_for(positions, 8, 100.0, torch.float64))
    assert_close(turned[0, 0], rotate_as_complex(states[0, 0], positions[0], 100.0))


def test_rotated_products_depend_on_distance_only():
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def product(i, j):
        turn = [rotation_for(torch.tensor([[n]]), 8, 100.0, torch.float64) for n in (i, j)]
        return (rotate(q, turn[0]) * rotate(k, turn[1])).sum()

    assert_close(product(9, 4), product(105, 100))
    assert not torch.allclose(product(9, 4), product(4, 9))


def test_a_variant_without_one_is_named(monkeypatch):
    monkeypatch.setattr(registry, "_VARIANTS", dict(registry._VARIANTS))
    variant = build("standard")
    register_variant("nameless")(type(variant))
    with pytest.raises(ValueError, match="'nameless' has no reference"):
        reference_attention("nameless", variant, hidden_states())
    with pytest.raises(ValueError, match="'shared' is not a Standard"):
        reference_attention("shared", variant, hidden_states())
