"""Bias and GELU in one pass against the formula in double precision, with torch's own error as the yardstick."""

import pytest
import torch
from helpers import tiny_config
from kernel_helpers import DEVICE, assert_within_twice, needs_kernels
from torch import nn
from torch.nn.functional import gelu

from sharedqkv.kernels import bias_gelu
from sharedqkv.models import encoder

pytestmark = needs_kernels


def values_and_gradients(function, x, bias, grad):
    x, bias = x.detach().requires_grad_(), bias.detach().requires_grad_()
    out = function(x, bias)
    return [out.detach(), *torch.autograd.grad(out, (x, bias), grad.to(out.dtype))]


def by_torch(x, bias):
    return gelu(x + bias.to(x.dtype))


# Rows and columns that fill no tile, fill one exactly, and need several.
@pytest.mark.parametrize("shape", [(1, 1), (3, 7, 300), (8, 256), (300, 1100)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_error_within_twice_that_of_torch(shape, dtype):
    torch.manual_seed(0)
    x = (3 * torch.randn(shape, device=DEVICE)).to(dtype)
    bias, grad = torch.randn(shape[-1], device=DEVICE), torch.randn(shape, device=DEVICE).to(dtype)
    exact = values_and_gradients(by_torch, x.double(), bias.double(), grad)
    found = values_and_gradients(bias_gelu, x, bias, grad)
    theirs = values_and_gradients(by_torch, x, bias, grad)
    assert_within_twice(found, theirs, exact, dtype)


def test_far_from_zero_it_is_the_identity_or_nothing():
    x = torch.tensor([[-60000.0, -30.0, 0.0, 30.0, 60000.0]], dtype=torch.float16, device=DEVICE)
    out, grad_x, _ = values_and_gradients(bias_gelu, x, torch.zeros(5, device=DEVICE), torch.ones_like(x))
    assert out.tolist() == [[0.0, 0.0, 0.0, 30.0, 60000.0]]
    assert grad_x.tolist() == [[0.0, 0.0, 0.5, 1.0, 1.0]]


def test_takes_any_strides():
    x, bias = torch.randn(6, 40, device=DEVICE).half().T, torch.randn(6, device=DEVICE)
    grad = torch.randn(6, 40, device=DEVICE).half().T
    found = values_and_gradients(bias_gelu, x, bias, grad)
    expected = values_and_gradients(bias_gelu, x.contiguous(), bias, grad.contiguous())
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_the_operator_keeps_torchs_rules():
    arguments = (torch.randn(4, 8, device=DEVICE).half().requires_grad_(), torch.randn(8, device=DEVICE))
    torch.library.opcheck(bias_gelu, arguments)


def test_the_encoder_uses_it_for_gelu_and_plain_layers_only(monkeypatch):
    calls = []
    monkeypatch.setattr(encoder, "kernels_know", lambda *_: True)
    monkeypatch.setattr(encoder, "bias_gelu", lambda x, bias: calls.append(x) or by_torch(x, bias))
    states = torch.randn(2, 3, 32)
    plain = encoder.SharedQKVIntermediate(tiny_config())
    torch.testing.assert_close(plain(states), gelu(plain.dense(states)))
    assert len(calls) == 1
    encoder.SharedQKVIntermediate(tiny_config(hidden_act="relu"))(states)
    adapted = encoder.SharedQKVIntermediate(tiny_config())
    adapted.dense = nn.Sequential(adapted.dense)
    adapted(states)
    watched = encoder.SharedQKVIntermediate(tiny_config())
    watched.dense.register_forward_hook(lambda *_: None)
    watched(states)
    assert len(calls) == 1
