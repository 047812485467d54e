import pytest
from attention_helpers import build, hidden_states

from sharedqkv.attention import Geometry, build_variant


def test_heads_are_half_as_wide():
    narrow = build("narrow")
    assert narrow.num_heads == 3
    assert narrow.head_size == 4
    assert narrow.context_width == 12
    assert narrow(hidden_states()).v_BGLK.shape == (2, 3, 5, 4)


def test_odd_head_size_is_refused():
    with pytest.raises(
        ValueError, match=r"halves the head size, and 3 \(hidden_size 12 / num_attention_heads 4\) is odd"
    ):
        build_variant("narrow", Geometry(12, 4))


def test_never_more_flops_than_shared():
    assert build("narrow").projection_flops() + 2 * 12 * 24 <= build("shared").projection_flops() + 2 * 24 * 24
