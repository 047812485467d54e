import pytest
import torch
from attention_helpers import build

from sharedqkv.attention import Geometry, build_variant


def test_default_rank_gives_the_weights_of_shared():
    variant = build("low_rank", width=768, num_heads=12)
    assert variant.rank == 128
    assert sum(p.numel() for n, p in variant.named_parameters() if n.endswith("weight")) == 768**2


def test_products_have_that_rank():
    variant = build("low_rank", rank=2)
    product = variant.query.up.weight @ variant.query.down.weight
    assert torch.linalg.matrix_rank(product) == 2


def test_products_start_as_spread_as_standard():
    variant = build("low_rank", width=768, num_heads=12, std=0.02)
    for projection in (variant.query, variant.key, variant.value):
        assert (projection.up.weight @ projection.down.weight).std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("rank", [0, -1, 2.5, True, "4"])
def test_bad_ranks_are_refused(rank):
    with pytest.raises(ValueError, match="'rank' must be a positive integer"):
        build_variant("low_rank", Geometry(24, 3), {"rank": rank})


def test_a_rank_over_the_width_is_refused():
    with pytest.raises(ValueError, match="'rank' must be at most hidden_size 24, not 25"):
        build_variant("low_rank", Geometry(24, 3), {"rank": 25})
