"""How kernels are cut, for every length, head size and dtype they are promised for."""

import pytest
import torch
from kernel_helpers import needs_kernels

from sharedqkv.kernels.op import DTYPES, HEAD_SIZES, TRITON_INSTALLED

if TRITON_INSTALLED:
    from sharedqkv.kernels import launch

pytestmark = needs_kernels
LENGTHS = (1, 15, 16, 17, 64, 65, 127, 128, 129, 256, 257, 1023, 8192)


def call(length, head_size, dtype):
    s_BGLD = torch.empty(1, 1, length, head_size, dtype=dtype, device="meta")
    return launch.Call(None, s_BGLD, *[None] * 7, scaling=1.0, causal=False, dropout=0.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_size", HEAD_SIZES)
def test_tiles_fit_products_and_whole_heads(head_size, dtype):
    for length in LENGTHS:
        forward = launch.forward_tiles(call(length, head_size, dtype))
        backward = launch.backward_tiles(call(length, head_size, dtype))
        for size in (forward.rows, forward.columns, backward.rows, backward.columns):
            assert size >= 16, "a product needs 16 in every direction"
            assert size & (size - 1) == 0, "a tile's sides are powers of two"
        assert not forward.whole_head
        if backward.whole_head:
            assert backward.rows == backward.columns >= length


@pytest.mark.parametrize("length", [1, 128, 129, 8192])
def test_half_precision_has_short_rows_in_one_tile(length):
    short = call(length, 64, torch.bfloat16)
    assert launch.backward_tiles(short).whole_head == (length <= 128)
    assert (launch.forward_tiles(short).columns >= length) == (length <= 128)


def test_full_means_no_row_is_missing():
    tiles = launch.Tiles(64, 32, warps=4, stages=1)
    assert tiles.arguments(128)["FULL"]
    assert not tiles.arguments(96)["FULL"]
