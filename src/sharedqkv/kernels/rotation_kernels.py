"""The rotation of rotary positions as one pass over memory; a program takes some tokens with all their heads."""

# mypy: allow-untyped-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

PAIRS = 2048
"""Of numbers that turn together, in a program: several loads of each thread are on their way at once."""


@triton.jit
def rotate_kernel(
    x_ptr, cos_ptr, sin_ptr, out_ptr, tokens, length, batch_stride, head_stride, token_stride, angles_batch_stride,
    HEADS: tl.constexpr, HALF: tl.constexpr, BACK: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    token = (tl.program_id(0) * R + tl.arange(0, R))[:, None]
    column = tl.arange(0, C)[None, :]
    head, pair = column // HALF, column % HALF
    inside = (token < tokens) & (column < HEADS * HALF)
    # Divided in 32 bits, which is faster, and multiplied in 64, where offsets have room.
    row, place = (token // length).to(tl.int64), (token % length).to(tl.int64)
    angle = row * angles_batch_stride + place * 2 * HALF + pair
    # Rounded as `rotate` rounds them; the products are not.
    cos = tl.load(cos_ptr + angle, mask=inside, other=0.0).to(x_ptr.dtype.element_ty).to(tl.float32)
    sin = tl.load(sin_ptr + angle, mask=inside, other=0.0).to(x_ptr.dtype.element_ty).to(tl.float32)
    if BACK:
        sin = -sin
    x = x_ptr + row * batch_stride + place * token_stride + head * head_stride + pair
    first = tl.load(x, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(x + HALF, mask=inside, other=0.0).to(tl.float32)
    out = out_ptr + (token.to(tl.int64) * HEADS + head) * 2 * HALF + pair
    tl.store(out, (first * cos - second * sin).to(out_ptr.dtype.element_ty), mask=inside)
    tl.store(out + HALF, (second * cos + first * sin).to(out_ptr.dtype.element_ty), mask=inside)


def rotate(x_BHLK: Tensor, cos_B1LK: Tensor, sin_B1LK: Tensor, back: bool) -> Tensor:
    if x_BHLK.stride(-1) != 1:
        x_BHLK = x_BHLK.contiguous()
    batch, heads, length, size = x_BHLK.shape
    cos, sin = cos_B1LK.contiguous(), sin_B1LK.contiguous()
    out_BLHK = x_BHLK.new_empty(batch, length, heads, size)
    columns = triton.next_power_of_2(heads * size // 2)
    rows = max(1, PAIRS // columns)
    with torch.cuda.device_of(x_BHLK):
        rotate_kernel[(triton.cdiv(batch * length, rows),)](
            x_BHLK, cos, sin, out_BLHK, batch * length, length,
            x_BHLK.stride(0), x_BHLK.stride(1), x_BHLK.stride(2), 0 if len(cos) == 1 else cos.stride(0),
            heads, size // 2, back, rows, columns,
        )  # fmt: skip
    return out_BLHK.transpose(1, 2)
