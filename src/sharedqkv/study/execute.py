"""Running cells: in this process one after the other, or in several that stay alive, each with its own GPU.

Either way a cell's output goes to `logs/<cell>.log`, threads are fixed, and a cell that fails does not stop the
others: only what needs it is left out.
"""

import contextlib
import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

import torch

from sharedqkv.study.cells import Cell, write_record
from sharedqkv.study.plan import Study
from sharedqkv.study.stages import remove_if_of_other_settings, run_cell

State = Literal["started", "done", "failed", "left out"]
_WAIT_FOR_CHECKPOINT_S = 60


@dataclass(frozen=True)
class Event:
    cell: Cell
    state: State
    seconds: float = 0.0
    error: str | None = None


Listener = Callable[[Event], None]


def run_cells(cells: Sequence[Cell], study: Study, folder: Path, jobs: int, on_event: Listener) -> None:
    """Run cells that are not finished; those they need that are not among them are."""
    queue = _Queue(cells, on_event)
    if jobs == 1:
        _run_here(queue, study, folder)
    else:
        _run_in_processes(queue, study, folder, jobs)


class _Queue:
    """Which cell comes next, and what becomes of those whose needs failed."""

    def __init__(self, cells: Sequence[Cell], on_event: Listener):
        self.waiting = list(cells)
        self.running: set[Cell] = set()
        self.failed: set[Cell] = set()
        self.on_event = on_event

    def next(self) -> Cell | None:
        """None where there is nothing to do now. A benchmark waits until it is alone, and nothing starts beside it."""
        self._leave_out()
        if any(cell.stage == "bench" for cell in self.running):
            return None
        undone = {*self.waiting, *self.running}
        for cell in self.waiting:
            if undone.isdisjoint(cell.needs) and (cell.stage != "bench" or not self.running):
                self.waiting.remove(cell)
                self.running.add(cell)
                self.on_event(Event(cell, "started"))
                return cell
        return None

    def ended(self, cell: Cell, seconds: float, error: str | None) -> None:
        self.running.discard(cell)
        if error is not None:
            self.failed.add(cell)
        self.on_event(Event(cell, "done" if error is None else "failed", seconds, error))

    def _leave_out(self) -> None:
        for cell in [cell for cell in self.waiting if not self.failed.isdisjoint(cell.needs)]:
            self.waiting.remove(cell)
            self.failed.add(cell)
            needed = next(need for need in cell.needs if need in self.failed)
            self.on_event(Event(cell, "left out", error=f"needs {needed.name}"))
            self._leave_out()
            return


def _run_here(queue: _Queue, study: Study, folder: Path) -> None:
    torch.set_num_threads(study.file.threads)
    while (cell := queue.next()) is not None:
        with (
            _log(cell, folder).open("w", encoding="utf-8") as log,
            contextlib.redirect_stdout(log),
            contextlib.redirect_stderr(log),
        ):
            seconds, error = _run(cell, study, folder)
        queue.ended(cell, seconds, error)


def _run(cell: Cell, study: Study, folder: Path) -> tuple[float, str | None]:
    """Seconds, and the error if there was one; the record says the same."""
    began = time.perf_counter()
    error = None
    remove_if_of_other_settings(cell, study, folder)
    write_record(cell, study, folder, state="started", seconds=None, error=None)
    try:
        run_cell(cell, study, folder)
    except Exception as caught:
        traceback.print_exc()
        error = f"{caught}" if isinstance(caught, ValueError | OSError) else f"{type(caught).__name__}: {caught}"
    seconds = round(time.perf_counter() - began, 2)
    write_record(cell, study, folder, state="failed" if error else "done", seconds=seconds, error=error)
    return seconds, error


def _log(cell: Cell, folder: Path) -> Path:
    path = folder / "logs" / f"{cell.name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


class _Worker:
    """A process that runs the cells it is given, one at a time."""

    def __init__(self, number: int, study: Study, folder: Path):
        self.number = number
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.cell: Cell | None = None
        # Not daemonic, since data loaders in it have children; `_die_with_parent` and the end of its pipe stop it.
        self.process = context.Process(target=_serve, args=(theirs, study, folder))
        with _environment(number, study):
            self.process.start()
        theirs.close()

    def give(self, cell: Cell) -> None:
        self.cell = cell
        self.pipe.send(cell)

    def result(self) -> tuple[float, str | None]:
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            return 0.0, f"its process died with exit code {self.process.exitcode}; the end of its log may say why"


@contextlib.contextmanager
def _environment(number: int, study: Study) -> Iterator[None]:
    """What a child must find before it imports torch: its threads and its GPUs."""
    values = {"OMP_NUM_THREADS": str(study.file.threads)}
    if torch.cuda.is_available():
        first = number * study.file.gpus_per_run
        values["CUDA_VISIBLE_DEVICES"] = ",".join(visible_gpus()[first : first + study.file.gpus_per_run])
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def visible_gpus() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them, or numbered."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(number) for number in range(torch.cuda.device_count())]


def _run_in_processes(queue: _Queue, study: Study, folder: Path, jobs: int) -> None:
    workers: list[_Worker] = []
    try:
        while True:
            busy = [worker for worker in workers if worker.cell is not None]
            while len(busy) < jobs and (cell := queue.next()) is not None:
                worker = next((worker for worker in workers if worker.cell is None), None)
                if worker is None:
                    taken = {worker.number for worker in workers}
                    worker = _Worker(min(set(range(jobs)) - taken), study, folder)
                    workers.append(worker)
                worker.give(cell)
                busy.append(worker)
            if not busy:
                return
            ready: list[Any] = wait([worker.pipe for worker in busy])
            for worker in [worker for worker in busy if worker.pipe in ready]:
                assert worker.cell is not None
                cell, worker.cell = worker.cell, None
                seconds, error = worker.result()
                if not worker.process.is_alive():
                    workers.remove(worker)
                    write_record(cell, study, folder, state="failed", seconds=seconds, error=error)
                queue.ended(cell, seconds, error)
    finally:
        for worker in workers:
            worker.pipe.close()  # idle ones end; busy ones have had the same Ctrl-C and save a checkpoint
        deadline = time.monotonic() + _WAIT_FOR_CHECKPOINT_S
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.terminate()


def _serve(pipe: Connection, study: Study, folder: Path) -> None:
    """In the child."""
    from sharedqkv.training.pretrain import quiet_transformers

    threading.Thread(target=_die_with_parent, args=(os.getppid(),), daemon=True).start()
    torch.set_num_threads(study.file.threads)
    quiet_transformers()
    with contextlib.suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        while True:
            cell = pipe.recv()
            with _log(cell, folder).open("w", encoding="utf-8") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            pipe.send(_run(cell, study, folder))


def _die_with_parent(parent: int) -> None:
    """A child that outlives a killed parent would write where its successor does."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
