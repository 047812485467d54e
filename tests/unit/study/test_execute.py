"""Running cells: order, isolation of failures, processes that die."""

import os
import signal
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from study_helpers import TINY, write_study

from sharedqkv.study import execute
from sharedqkv.study.cells import cells_of, record_of
from sharedqkv.study.execute import Event, check_gpus, run_cells
from sharedqkv.study.plan import load_study
from sharedqkv.study.run import run_study


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
    def run_cell(cell, study, folder, gpus):
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
    assert queue.next(3) is prepare
    assert queue.next(2) is other  # not the benchmark, while something runs
    assert queue.next(1) is None
    queue.ended(prepare, 1.0, None)
    queue.ended(other, 1.0, None)
    assert queue.next(3) is bench
    queue.waiting.append(execute.Cell("maps"))
    assert queue.next(2) is None


def test_what_needs_many_gpus_is_not_overtaken():
    pretrain, maps = execute.Cell("pretrain"), execute.Cell("maps")
    queue = execute._Queue([maps, pretrain], lambda event: None, pretraining_places=3)
    assert queue.next(2) is None
    assert queue.next(3) is pretrain
    assert queue.next(0) is None
    assert queue.next(1) is maps


class Shop:
    """Stands for the worker processes: says who uses which GPU, and ends cells in any order."""

    def __init__(self, monkeypatch, gpus, seed=0):
        self.busy = {}
        self.given = []
        self.most_at_once = 0
        random = Random(seed)
        shop = self

        class Worker:
            def __init__(self, study, folder, gpu):
                self.gpu, self.pipe, self.cell = gpu, object(), None
                self.process = SimpleNamespace(
                    pid=None, is_alive=lambda: True, join=lambda wait: None, kill=lambda: None
                )

            def give(self, cell, gpus):
                assert self.gpu in gpus
                assert not set(gpus) & {gpu for _, taken in shop.busy.values() for gpu in taken}
                self.cell, shop.busy[self.pipe] = cell, (cell, gpus)
                shop.given.append((cell, gpus))
                shop.most_at_once = max(shop.most_at_once, len(shop.busy))

            def result(self):
                del shop.busy[self.pipe]
                return 1.0, None

            def ask_to_stop(self):
                assert self.cell is None

        monkeypatch.setattr(execute, "visible_gpus", lambda: gpus)
        monkeypatch.setattr(execute, "_Worker", Worker)
        monkeypatch.setattr(execute, "wait", lambda pipes: [random.choice(pipes)])


@pytest.mark.parametrize(("gpus", "gpus_per_run", "jobs"), [(4, 2, 4), (5, 2, 5), (4, 4, 4), (3, 1, 3), (4, 2, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_no_gpu_is_given_to_two_cells(gpus, gpus_per_run, jobs, seed, tmp_path, monkeypatch):
    study = load_study(write_study(tmp_path, TINY.replace("rows_per_device: 4", "rows_per_device: 1")
                                   + f"gpus_per_run: {gpus_per_run}\n"))  # fmt: skip
    shop = Shop(monkeypatch, [f"GPU-{number}" for number in range(gpus)], seed)
    run_cells(cells_of(study), study, tmp_path, jobs, lambda event: None)
    assert {cell.name for cell, _ in shop.given} == {cell.name for cell in cells_of(study)}
    for cell, taken in shop.given:
        assert len(taken) == (gpus_per_run if cell.stage == "pretrain" else 1)
    assert shop.most_at_once == 1 if jobs == 1 else 2 < shop.most_at_once <= jobs


def test_more_gpus_for_a_run_than_there_are(tmp_path, monkeypatch):
    text = TINY.replace("rows_per_device: 4", "rows_per_device: 1") + "gpus_per_run: 4\n"
    study = load_study(write_study(tmp_path, text))
    monkeypatch.setattr(execute, "visible_gpus", lambda: ["0", "1"])
    with pytest.raises(ValueError, match="gpus_per_run is 4, and there are 2 GPUs here"):
        check_gpus(study)
    with pytest.raises(ValueError, match="gpus_per_run is 4, and there are 2 GPUs here"):
        run_study(study, str(tmp_path / "out"), 1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("named", "count", "found"),
    [(None, 2, ["0", "1"]), ("3,5", 2, ["3", "5"]), ("3,5,-1,6", 2, ["3", "5"]), ("-1", 0, []), ("", 0, [])],
)
def test_visible_gpus(named, count, found, monkeypatch):
    monkeypatch.setattr(execute.torch.cuda, "device_count", lambda: count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert execute.visible_gpus() == found


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

        def give(worker, cell, gpus):
            real(worker, cell, gpus)
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

    def test_one_job_on_several_gpus_is_a_process_that_sees_one_of_them(self, study, tmp_path, monkeypatch):
        monkeypatch.setattr(execute, "visible_gpus", lambda: ["6", "7"])
        seen = []
        real = execute._Worker.result

        def result(worker):
            answer = real(worker)
            environment = Path(f"/proc/{worker.process.pid}/environ").read_bytes().split(b"\0")
            seen.extend(value for value in environment if value.startswith(b"CUDA_VISIBLE_DEVICES="))
            return answer

        monkeypatch.setattr(execute._Worker, "result", result)
        events: list[Event] = []
        run_cells([cell for cell in cells_of(study) if cell.name == "bench"], study, tmp_path, 1, events.append)
        assert states(events) == {"bench": "done"}
        assert seen == [b"CUDA_VISIBLE_DEVICES=6"]
