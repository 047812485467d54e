"""Kernels of bias and GELU, forward and backward; a program takes some rows and some columns.

The erf of the GPU's library takes so many instructions that a pass waits for them instead of for memory. Abramowitz and
Stegun's 7.1.26 takes one exponential, which the derivative needs anyway, and is right to 1.5e-7, far below what half
precision can tell.
"""

# mypy: allow-untyped-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

FORWARD_ROWS, FORWARD_COLUMNS = 4, 1024
BACKWARD_ROWS, BACKWARD_COLUMNS, BACKWARD_STEPS = 2, 1024, 32


@triton.jit
def _below_and_density(x):
    """The share of the normal distribution below x, and its density at x."""
    distance = tl.abs(x)
    t = 1.0 / (1.0 + 0.23164189 * distance)
    density = 0.39894228 * tl.exp2(-0.72134752 * x * x)
    series = t * (0.31938153 + t * (-0.35656378 + t * (1.78147794 + t * (-1.82125598 + t * 1.33027443))))
    tail = density * series
    return tl.where(x < 0, tail, 1.0 - tail), density


@triton.jit
def forward_kernel(x_ptr, bias_ptr, out_ptr, rows, columns, R: tl.constexpr, C: tl.constexpr):
    row = (tl.program_id(0).to(tl.int64) * R + tl.arange(0, R))[:, None]
    column = (tl.program_id(1) * C + tl.arange(0, C))[None, :]
    inside = (row < rows) & (column < columns)
    bias = tl.load(bias_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * columns + column, mask=inside, other=0.0).to(tl.float32) + bias
    below, _ = _below_and_density(x)
    tl.store(out_ptr + row * columns + column, (x * below).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(
    grad_ptr, x_ptr, bias_ptr, grad_x_ptr, bias_sums_ptr, rows, columns,
    R: tl.constexpr, C: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Sums over its rows for the gradient of the bias, so that no other pass has to read what is written here."""
    column = (tl.program_id(1) * C + tl.arange(0, C))[None, :]
    bias = tl.load(bias_ptr + column, mask=column < columns, other=0.0).to(tl.float32)
    total = tl.zeros([R, C], tl.float32)
    for step in range(STEPS):
        row = ((tl.program_id(0).to(tl.int64) * STEPS + step) * R + tl.arange(0, R))[:, None]
        inside = (row < rows) & (column < columns)
        x = tl.load(x_ptr + row * columns + column, mask=inside, other=0.0).to(tl.float32) + bias
        grad = tl.load(grad_ptr + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        below, density = _below_and_density(x)
        grad = grad * (below + x * density)
        tl.store(grad_x_ptr + row * columns + column, grad.to(grad_x_ptr.dtype.element_ty), mask=inside)
        total += grad
    sums = tl.sum(total, 0)[None, :]
    tl.store(bias_sums_ptr + tl.program_id(0) * columns + column, sums, mask=column < columns)


def forward(x: Tensor, bias: Tensor) -> Tensor:
    out = torch.empty_like(x)
    columns = x.shape[-1]
    rows = x.numel() // columns
    grid = (triton.cdiv(rows, FORWARD_ROWS), triton.cdiv(columns, FORWARD_COLUMNS))
    with torch.cuda.device_of(x):
        forward_kernel[grid](x, bias, out, rows, columns, FORWARD_ROWS, FORWARD_COLUMNS)
    return out


def backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    grad_x = torch.empty_like(x)
    columns = x.shape[-1]
    rows = x.numel() // columns
    grid = (triton.cdiv(rows, BACKWARD_ROWS * BACKWARD_STEPS), triton.cdiv(columns, BACKWARD_COLUMNS))
    bias_sums = x.new_empty(grid[0], columns, dtype=torch.float32)
    with torch.cuda.device_of(x):
        backward_kernel[grid](
            grad, x, bias, grad_x, bias_sums, rows, columns, BACKWARD_ROWS, BACKWARD_COLUMNS, BACKWARD_STEPS
        )
    return grad_x, bias_sums.sum(0)
