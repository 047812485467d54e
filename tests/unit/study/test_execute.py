"""Running cells: order, isolation of failures, processes that die."""

import os
import signal
import time

import pytest
from study_helpers import write_study

from sharedqkv.study import execute
from sharedqkv.study.cells import cells_of, record_of
from sharedqkv.study.execute import Event, run_cells
from sharedqkv.study.plan import load_study


@pytest.fixture
def study(tmp_path):
    return load_study(write_study(tmp_path))


def run(study, folder, jobs, monkeypatch, run_cell):
    """Events of a whole run with cells that do what `run_cell` says. Children must find it by name."""
    events: list[Event] = []
    monkeypatch.setattr(execute, "run_cell", run_cell)
    run_cells(cells_of(study), study, folder, jobs, events.append)
    return events


def states(events):
    return {event.cell.name: event.state for event in events if event.state != "started"}


def test_a_failed_cell_leaves_out_only_what_needs_it(study, tmp_path, monkeypatch):
    def run_cell(cell, study, folder):
        print("said by", cell.name)
        if cell.name == "pretrain/shared/0":
            raise ValueError("out of luck")

    events = run(study, tmp_path, 1, monkeypatch, run_cell)
    ended = states(events)
    assert ended["pretrain/shared/0"] == "failed"
    left_out = {name for name, state in ended.items() if state == "left out"}
    assert left_out == {"finetune/shared/0", "robust/shared/0", "maps"}
    assert {state for name, state in ended.items() if name not in left_out and name != "pretrain/shared/0"} == {"done"}
    assert "said by prepare" in (tmp_path / "logs" / "prepare.log").read_text()
    assert "out of luck" in (tmp_path / "logs" / "pretrain/shared/0.log").read_text()
    cells = {cell.name: cell for cell in cells_of(study)}
    assert record_of(cells["pretrain/shared/0"], tmp_path)["error"] == "out of luck"
    assert record_of(cells["robust/standard/1"], tmp_path)["state"] == "done"
    assert not record_of(cells["robust/shared/0"], tmp_path)


def test_the_benchmark_runs_alone():
    prepare, bench, other = (execute.Cell(stage) for stage in ("prepare", "bench", "maps"))
    queue = execute._Queue([prepare, bench, other], lambda event: None)
    assert queue.next() is prepare
    assert queue.next() is other  # not the benchmark, while something runs
    assert queue.next() is None
    queue.ended(prepare, 1.0, None)
    queue.ended(other, 1.0, None)
    assert queue.next() is bench
    queue.waiting.append(execute.Cell("maps"))
    assert queue.next() is None


class TestProcesses:
    """Children import `execute` anew, so that what they run is the real thing, here a study without any data."""

    def test_a_process_that_dies_fails_its_cell_and_not_the_study(self, study, tmp_path, monkeypatch):
        events: list[Event] = []
        killed = []

        def kill_the_first(event):
            events.append(event)
            if event.state == "started" and event.cell.name == "bench":
                time.sleep(0.2)

        real = execute._Worker.give

        def give(worker, cell):
            real(worker, cell)
            if cell.name == "bench" and not killed:
                killed.append(worker.process.pid)
                os.kill(worker.process.pid, signal.SIGKILL)

        monkeypatch.setattr(execute._Worker, "give", give)
        cells = [cell for cell in cells_of(study) if cell.name in ("bench", "prepare")]
        run_cells(cells, study, tmp_path, 2, kill_the_first)
        ended = states(events)
        assert ended == {"prepare": "done", "bench": "failed"}
        assert "its process died with exit code -9" in next(e.error for e in events if e.state == "failed")
        run_cells([cell for cell in cells if cell.name == "bench"], study, tmp_path, 2, kill_the_first)
        assert states(events)["bench"] == "done"
