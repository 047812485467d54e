import pytest
from helpers import tiny_config

from sharedqkv.accounting import forward_flops_per_token


def test_longer_rows_cost_more_per_token():
    config = tiny_config("shared")
    assert forward_flops_per_token(config, 16) > forward_flops_per_token(config, 8)


def test_the_head_is_counted_by_its_share():
    config = tiny_config("shared")
    without, whole = (forward_flops_per_token(config, 8, share) for share in (0, 1))
    assert whole - without == 2 * (32 * 32 + 32 * 40)


def test_over_long_rows_are_refused():
    with pytest.raises(ValueError, match="length 17 is over max_position_embeddings 16"):
        forward_flops_per_token(tiny_config(), 17)
