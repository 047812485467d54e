import pytest
import torch
from attention_helpers import build, hidden_states
from torch.testing import assert_close

from sharedqkv.accounting import count_parameters
from sharedqkv.attention import Geometry, build_variant
from sharedqkv.attention.reference import reference_attention
from sharedqkv.models import SharedQKVConfig


def test_multi_query_by_default():
    projected = build("grouped")(hidden_states())
    assert projected.q_BHLK.shape[1] == 3
    assert projected.k_BGLK.shape[1] == projected.v_BGLK.shape[1] == 1


def test_tie_makes_keys_and_values_one_tensor():
    variant = build("grouped", num_heads=4, num_key_value_heads=2, tie_key_value=True)
    projected = variant(hidden_states())
    assert projected.k_BGLK is projected.v_BGLK
    assert projected.k_BGLK.shape[1] == 2
    assert sum(p.numel() for p in variant.parameters()) == variant.parameter_formula()


def test_heads_must_divide():
    with pytest.raises(ValueError, match="'num_key_value_heads' must divide num_attention_heads 3, and 2 does not"):
        build_variant("grouped", Geometry(24, 3), {"num_key_value_heads": 2})


def test_fewer_query_heads():
    variant, hidden = build("grouped", num_query_heads=2), hidden_states()
    projected = variant(hidden)
    assert projected.q_BHLK.shape[1] == 2
    assert variant.context_width == 2 * variant.head_size
    assert sum(p.numel() for p in variant.parameters()) == variant.parameter_formula()
    context_BLHK = torch.nn.functional.scaled_dot_product_attention(
        projected.q_BHLK, projected.k_BGLK, projected.v_BGLK, enable_gqa=True
    ).transpose(1, 2)
    assert_close(context_BLHK.flatten(2), reference_attention("grouped", variant, hidden))


def test_one_query_head_fewer_has_the_weights_of_shared():
    """2d², Wo included, which is as narrow as the heads together; biases come on top, as diagonals do for shared."""
    width, head = 512, 64
    config = SharedQKVConfig.from_size("medium", attention_variant="grouped", attention_options={"num_query_heads": 7})
    biases = 7 * head + 2 * head + width
    assert count_parameters(config).attention_block == 2 * width**2 + biases


def test_query_heads_must_divide():
    with pytest.raises(ValueError, match="'num_key_value_heads' must divide num_query_heads 3, and 2 does not"):
        build_variant("grouped", Geometry(32, 4), {"num_key_value_heads": 2, "num_query_heads": 3})


@pytest.mark.parametrize(
    ("option", "value"), [("num_key_value_heads", 0), ("tie_key_value", 1), ("num_query_heads", 0)]
)
def test_bad_options_are_refused(option, value):
    with pytest.raises(ValueError, match=option):
        build_variant("grouped", Geometry(24, 3), {option: value})
