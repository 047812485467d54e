"""Models are timed in turns, every repeat of every one."""

from helpers import tiny_config

from sharedqkv.accounting.timing import time_models


def test_every_model_is_timed_as_often_as_asked():
    measured = time_models({name: tiny_config(name) for name in ("standard", "shared")}, rows=2, length=8, repeats=3)
    assert (measured["rows"], measured["length"]) == (2, 8)
    assert list(measured["entrants"]) == ["standard", "shared"]
    for times in measured["entrants"].values():
        assert len(times["train_step_s"]) == len(times["forward_s"]) == 3
        assert min(times["train_step_s"] + times["forward_s"]) > 0
