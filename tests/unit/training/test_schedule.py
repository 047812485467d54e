import pytest
import torch

from sharedqkv.training.schedule import Clock, make_schedule, rate_factor


def test_linear():
    assert rate_factor(0.0, "linear", 0.1, 0.2) == 0
    assert rate_factor(0.05, "linear", 0.1, 0.2) == pytest.approx(0.5)
    assert rate_factor(0.1, "linear", 0.1, 0.2) == 1
    assert rate_factor(0.55, "linear", 0.1, 0.2) == pytest.approx(0.5)
    assert rate_factor(1.0, "linear", 0.1, 0.2) == 0


def test_warmup_stable_decay():
    factors = [rate_factor(progress, "warmup_stable_decay", 0.1, 0.2) for progress in (0.05, 0.1, 0.5, 0.8, 0.9, 1.0)]
    assert factors == pytest.approx([0.5, 1, 1, 1, 0.5, 0])


def test_constant():
    assert [rate_factor(progress, "constant", 0.1, 0.2) for progress in (0.05, 0.5, 1)] == pytest.approx([0.5, 1, 1])


def test_no_warmup():
    assert rate_factor(0.0, "linear", 0.0, 0.2) == 1


def test_every_step_learns():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=2.0)
    schedule = make_schedule(optimizer, 10, "linear", 0.2, 0.1, None)
    rates = []
    for _ in range(10):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert min(rates) > 0
    assert max(rates) <= 2.0


def test_the_clock_counts_earlier_sittings():
    assert Clock(budget_s=100, before_s=50).progress() == pytest.approx(0.5, abs=0.01)
    assert Clock(budget_s=100, before_s=500).progress() == 1
