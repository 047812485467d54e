"""Which of the tried learning rates is taken."""

import math

import pytest

from sharedqkv.evidence.learning_rates import best_rate, judged_loss
from sharedqkv.training.run_folder import RunFolder


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ({1e-3: 3.0, 2e-3: 2.0}, 2e-3),
        ({1e-3: 3.0, 2e-3: None}, None),
        ({1e-3: 3.0, 2e-3: math.inf}, 1e-3),
        ({1e-3: math.inf, 2e-3: math.inf}, None),
    ],
)
def test_the_lowest_loss_is_best_once_all_are_known(losses, best):
    assert best_rate(losses) == best


def test_a_run_is_judged_by_the_last_fifth_of_its_training_loss(tmp_path):
    run = RunFolder(tmp_path)
    assert judged_loss(run) is None, "not begun"
    run.create({"state": "running"})
    for step in range(1, 11):
        run.append_metrics({"step": step, "tokens": step, "loss": 9.0 if step < 9 else step})
        run.append_metrics({"step": step, "tokens": step, "eval_loss": 1.0})
    assert judged_loss(run) is None, "not finished"
    run.set_state("done")
    assert judged_loss(run) == 9.5
    run.set_state("failed", error="OSError: disk full")
    assert judged_loss(run) is None
    run.set_state("failed", error="NonFiniteLossError: the loss is nan")
    assert judged_loss(run) == math.inf
