import pytest
import torch
from attention_helpers import build, hidden_states, is_symmetric, logits

from sharedqkv.attention import Geometry, build_variant


def test_starts_normal_with_unit_spread():
    pairing = build("pairwise", width=768, num_heads=12).pairing.detach()
    assert pairing.shape == (12, 64, 64)
    assert pairing.std() == pytest.approx(1, abs=0.02)
    assert pairing.mean() == pytest.approx(0, abs=0.02)


def test_identity_starts_as_symmetric_attention():
    variant, hidden = build("pairwise", init="identity"), hidden_states()
    assert torch.equal(variant.pairing, torch.eye(8, dtype=torch.float64).expand(3, 8, 8))
    assert is_symmetric(logits(variant, hidden))


def test_the_map_breaks_the_symmetry():
    assert not is_symmetric(logits(build("pairwise"), hidden_states()))


def test_unknown_init_is_refused():
    with pytest.raises(ValueError, match="'init' must be one of normal, identity, not 'zeros'"):
        build_variant("pairwise", Geometry(24, 3), {"init": "zeros"})
