"""A scheduler signals every process of a job, and those that started it hand the signal on besides: it comes twice."""

import os
import signal
from types import SimpleNamespace

import pytest

from sharedqkv.training.callbacks import Stop
from sharedqkv.training.pretrain import _train
from sharedqkv.training.run_folder import RunFolder


@pytest.fixture
def interrupting():
    """What a study's worker does with a signal when no training listens."""

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    yield
    signal.signal(signal.SIGTERM, before)


def sigterm(*_, **__):
    os.kill(os.getpid(), signal.SIGTERM)


def make_trainer(resume):
    return SimpleNamespace(
        resume=resume,
        state=SimpleNamespace(global_step=3, max_steps=10),
        watch=SimpleNamespace(check_now=lambda step: None),
        leave_group=lambda: None,
    )


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create({})
    folder.set_state("running")
    return folder


def test_a_second_signal_does_not_make_a_stopped_run_a_failed_one(interrupting, run, monkeypatch):
    tell = run.set_state

    def signalled_meanwhile(*state, **more):
        sigterm()
        tell(*state, **more)

    monkeypatch.setattr(run, "set_state", signalled_meanwhile)
    outcome = _train(make_trainer(sigterm), run, None, Stop(None), is_main=True)
    assert (outcome.state, run.info()["state"]) == ("stopped", "stopped")


def test_a_signal_after_the_end_leaves_what_was_told(interrupting, run):
    trainer = make_trainer(sigterm)
    trainer.leave_group = sigterm
    with pytest.raises(KeyboardInterrupt):
        _train(trainer, run, None, Stop(None), is_main=True)
    assert run.info()["state"] == "stopped"


def test_what_breaks_a_run_is_told(run):
    def break_down(checkpoint):
        raise ValueError("no such luck")

    with pytest.raises(ValueError, match="no such luck"):
        _train(make_trainer(break_down), run, None, Stop(None), is_main=True)
    assert run.info()["error"] == "ValueError: no such luck"
