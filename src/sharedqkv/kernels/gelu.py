"""`gelu(x + bias)` as one pass over memory each way, the bias's gradient included."""

from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("sharedqkv::bias_gelu", mutates_args=())
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """BERT's GELU, the one by erf, of x (..., F) + bias (F); x in half precision."""
    from sharedqkv.kernels import gelu_kernels

    return gelu_kernels.forward(x.contiguous(), bias)


@bias_gelu.register_fake
def _(x: Tensor, bias: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("sharedqkv::bias_gelu_backward", mutates_args=())
def _backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    from sharedqkv.kernels import gelu_kernels

    return gelu_kernels.backward(grad.contiguous(), x.contiguous(), bias)


@_backward.register_fake
def _(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x, memory_format=torch.contiguous_format), bias.new_empty(bias.shape, dtype=torch.float32)


def _setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    x, bias = ctx.saved_tensors
    grad_x, grad_bias = _backward(grad, x, bias)
    return grad_x, grad_bias.to(bias.dtype)


bias_gelu.register_autograd(_differentiate, setup_context=_setup_context)
