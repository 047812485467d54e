import pytest
from attention_helpers import build, hidden_states

from sharedqkv.attention import Geometry, build_variant


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


@pytest.mark.parametrize(("option", "value"), [("num_key_value_heads", 0), ("tie_key_value", 1)])
def test_bad_options_are_refused(option, value):
    with pytest.raises(ValueError, match=option):
        build_variant("grouped", Geometry(24, 3), {option: value})
