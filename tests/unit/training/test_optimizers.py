import pytest
import torch
from torch.testing import assert_close

from sharedqkv.training.optimizers import StableAdamW


def literal(parameter, gradients, lr, betas, eps, decay):
    """The paper's algorithm, one number at a time in double precision."""
    theta = parameter.double().clone()
    m, v = torch.zeros_like(theta), torch.zeros_like(theta)
    for t, gradient in enumerate(gradients, start=1):
        b1 = betas[0] * (1 - betas[0] ** (t - 1)) / (1 - betas[0] ** t)
        b2 = betas[1] * (1 - betas[1] ** (t - 1)) / (1 - betas[1] ** t)
        g = gradient.double()
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        rms = (g**2 / torch.maximum(v, torch.tensor(eps**2, dtype=v.dtype))).mean().sqrt()
        rate = lr / max(1.0, rms.item())
        theta = theta - rate * decay * theta - rate * m / (v.sqrt() + eps)
    return theta


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_follows_the_paper(decay):
    parameter = torch.nn.Parameter(torch.randn(4, 3))
    gradients = [torch.randn(4, 3) * (50 if step == 5 else 1) for step in range(8)]
    expected = literal(parameter.detach(), gradients, 0.01, (0.9, 0.98), 1e-6, decay)
    optimizer = StableAdamW([parameter], lr=0.01, betas=(0.9, 0.98), eps=1e-6, weight_decay=decay)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    assert_close(parameter.detach().double(), expected, atol=1e-5, rtol=1e-5)


def test_a_sudden_gradient_moves_it_less_than_adamw():
    moved = {}
    for kind in (torch.optim.AdamW, StableAdamW):
        parameter = torch.nn.Parameter(torch.zeros(10))
        optimizer = kind([parameter], lr=0.1, betas=(0.9, 0.999), weight_decay=0.0)
        for gradient in [*[torch.full((10,), 1e-3)] * 20, torch.ones(10)]:
            before = parameter.detach().clone()
            parameter.grad = gradient
            optimizer.step()
        moved[kind] = (parameter.detach() - before).norm()
    assert moved[StableAdamW] < moved[torch.optim.AdamW] / 3


def test_state_survives_saving():
    def train(steps, state=None, start=None):
        torch.manual_seed(0)
        parameter = torch.nn.Parameter(torch.ones(5) if start is None else start.clone())
        optimizer = StableAdamW([parameter], lr=0.01)
        if state is not None:
            optimizer.load_state_dict(state)
        for step in steps:
            parameter.grad = torch.full((5,), float(step))
            optimizer.step()
        return parameter.detach(), optimizer.state_dict()

    whole, _ = train(range(1, 7))
    half, state = train(range(1, 4))
    resumed, _ = train(range(4, 7), state, half)
    assert torch.equal(whole, resumed)


def test_parameters_without_gradient_stay():
    one, other = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = StableAdamW([one, other], lr=0.1)
    one.grad = torch.ones(2)
    optimizer.step()
    assert not torch.equal(one, torch.ones(2))
    assert torch.equal(other, torch.ones(2))
