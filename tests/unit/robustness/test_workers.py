"""Work beside the models: in order, here or in other processes, with its errors."""

import gc
import os
from types import SimpleNamespace

import pytest

from sharedqkv.robustness import workers as workers_module
from sharedqkv.robustness.conditions import CLEAN, Condition, Examples
from sharedqkv.robustness.workers import Desk, Job, Workers

PARTS = [(number, severity) for number in range(4) for severity in (1, 5)]


def echo(desk, number, severity):
    if number == 3:
        raise ValueError(f"job {number} is broken")
    return number, severity


def niceness_and_frozen(desk, number, severity):
    return os.nice(0), gc.get_freeze_count()


def with_gpu(monkeypatch, processors):
    has_gpu = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True))
    monkeypatch.setattr(workers_module, "torch", has_gpu)
    monkeypatch.setattr(workers_module.os, "cpu_count", lambda: processors)


@pytest.fixture(params=["here", "in processes"])
def workers(request, monkeypatch):
    monkeypatch.setattr(Desk, "prepare", echo)
    if request.param == "in processes":
        with_gpu(monkeypatch, processors=4)
    with Workers(Desk([])) as workers:
        assert workers.count == (0 if request.param == "here" else 2)
        yield workers


def test_parts_come_in_their_order(workers):
    assert list(workers.prepare(PARTS[:6])) == PARTS[:6]


def test_what_breaks_is_told(workers):
    with pytest.raises(ValueError, match="job 3 is broken"):
        list(workers.prepare(PARTS))


def test_processes_begin_at_once_and_stay_a_little_ahead(workers):
    taken = []
    prepared = workers.prepare(part for part in PARTS[:6] if taken.append(part) is None)
    assert taken == PARTS[: 2 * workers.count]
    assert next(prepared) == PARTS[0]
    assert taken == PARTS[: 2 * workers.count + 1]


@pytest.mark.parametrize(
    ("processors", "examples", "count"),
    [(16, 872, 8), (16, 9815, 14), (4, 9815, 2), (2, 872, 0), (1, 872, 0), (16, 20, 8)],
)
def test_processes_are_as_many_as_are_useful_and_leave_processors_free(processors, examples, count, monkeypatch):
    with_gpu(monkeypatch, processors)
    jobs = [Job(None, Condition(CLEAN), Examples(["a text"] * number, {}), []) for number in (7, examples)]
    assert Workers(Desk(jobs)).count == count


def test_processes_give_way_and_do_not_search_what_was_there_for_garbage(monkeypatch):
    gc.unfreeze()  # what the suite itself has frozen would hide whether they do it
    monkeypatch.setattr(Desk, "prepare", niceness_and_frozen)
    with_gpu(monkeypatch, processors=4)
    with Workers(Desk([])) as workers:
        [(niceness, frozen)] = workers.prepare(PARTS[:1])
        assert niceness == min(19, os.nice(0) + 10)
        assert frozen > 10_000
    assert gc.get_freeze_count() == 0
