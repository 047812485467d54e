"""Running cells: in this process one after the other, or in several that stay alive, each with one GPU of its own.

Either way a cell's output goes to `logs/<cell>.log`, threads are fixed, and a cell that fails does not stop the
others: only what needs it is left out. A pre-training run over several GPUs has its own processes (`launch`), which
take the GPUs of as many workers.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

import torch

from sharedqkv.study.cells import Cell, write_record
from sharedqkv.study.definition import Study
from sharedqkv.study.launch import CHECKPOINT_WAIT_S, family_of, kill
from sharedqkv.study.stages import remove_if_of_other_settings, run_cell

State = Literal["started", "done", "failed", "left out"]


@dataclass(frozen=True)
class Event:
    cell: Cell
    state: State
    seconds: float = 0.0
    error: str | None = None


Listener = Callable[[Event], None]


def visible_gpus() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them, or numbered."""
    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",")[:count] if named else [str(number) for number in range(count)]


def check_gpus(study: Study) -> None:
    gpus = visible_gpus()
    if gpus and study.file.gpus_per_run > len(gpus):
        raise ValueError(
            f"{study.name}: gpus_per_run is {study.file.gpus_per_run}, and there are {len(gpus)} GPUs here: lower it"
        )


def run_cells(cells: Sequence[Cell], study: Study, folder: Path, jobs: int, on_event: Listener) -> None:
    """Run cells that are not finished; those they need that are not among them are."""
    gpus = visible_gpus()
    queue = _Queue(cells, on_event, study.file.gpus_per_run if gpus else 1)
    with _sigterm_interrupts():
        if jobs == 1 and len(gpus) < 2:
            _run_here(queue, study, folder)
        else:
            _run_in_processes(queue, study, folder, jobs, gpus)


class _Queue:
    """Which cell comes next, and what becomes of those whose needs failed."""

    def __init__(self, cells: Sequence[Cell], on_event: Listener, pretraining_places: int = 1):
        self.waiting = list(cells)
        self.running: set[Cell] = set()
        self.failed: set[Cell] = set()
        self.on_event = on_event
        self.pretraining_places = pretraining_places

    def places(self, cell: Cell) -> int:
        """GPUs that it takes; where there are none, a turn."""
        return self.pretraining_places if cell.stage == "pretrain" else 1

    def next(self, free: int) -> Cell | None:
        """None where there is nothing to do now in so many places.

        Cells that take many places come first, and nothing overtakes them, or they would wait for ever. A benchmark
        waits until it is alone, and nothing starts beside it.
        """
        self._leave_out()
        if any(cell.stage == "bench" for cell in self.running):
            return None
        undone = {*self.waiting, *self.running}
        ready = [
            cell
            for cell in self.waiting
            if undone.isdisjoint(cell.needs) and (cell.stage != "bench" or not self.running)
        ]
        cell = max(ready, key=self.places, default=None)
        if cell is None or self.places(cell) > free:
            return None
        self.waiting.remove(cell)
        self.running.add(cell)
        self.on_event(Event(cell, "started"))
        return cell

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
    while (cell := queue.next(free=1)) is not None:
        with (
            _log(cell, folder).open("w", encoding="utf-8") as log,
            contextlib.redirect_stdout(log),
            contextlib.redirect_stderr(log),
        ):
            seconds, error = _run(cell, study, folder)
        queue.ended(cell, seconds, error)


def _run(cell: Cell, study: Study, folder: Path, gpus: Sequence[str] = ()) -> tuple[float, str | None]:
    """Seconds, and the error if there was one; the record says the same."""
    began = time.perf_counter()
    error = None
    try:
        remove_if_of_other_settings(cell, study, folder)
        write_record(cell, study, folder, state="started", seconds=None, error=None)
        run_cell(cell, study, folder, gpus)
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
    """A process that runs the cells it is given, one at a time, and sees one GPU at most."""

    def __init__(self, study: Study, folder: Path, gpu: str | None):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.cell: Cell | None = None
        # Not daemonic, since data loaders in it have children; `_die_with_parent` and the end of its pipe stop it.
        self.process = context.Process(target=_serve, args=(theirs, study, folder, os.getpid()))
        with _environment(study.file.threads, gpu), _sigint_ignored():
            self.process.start()
        theirs.close()

    def give(self, cell: Cell, gpus: Sequence[str]) -> None:
        """`gpus` are all that the cell may use, its worker's own among them."""
        self.cell = cell
        with contextlib.suppress(BrokenPipeError):  # `result` tells that it died
            self.pipe.send((cell, gpus))

    def result(self) -> tuple[float, str | None]:
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            return 0.0, f"its process died with exit code {self.process.exitcode}; the end of its log may say why"

    def ask_to_stop(self) -> None:
        if self.cell is None:
            self.pipe.close()
        else:
            self.process.terminate()  # pre-training then saves a checkpoint


@contextlib.contextmanager
def _environment(threads: int, gpu: str | None) -> Iterator[None]:
    """What a child must find before it imports torch: its threads and its GPU."""
    values = {"OMP_NUM_THREADS": str(threads)} | ({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})
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


@contextlib.contextmanager
def _sigint_ignored() -> Iterator[None]:
    """A child inherits it: Ctrl-C reaches it through us only, and once."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """A scheduler's SIGTERM is as good as Ctrl-C."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: Any) -> None:
    """Once: a scheduler signals every process of a job, and we hand it on besides."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _run_in_processes(queue: _Queue, study: Study, folder: Path, jobs: int, gpus: Sequence[str]) -> None:
    """Each place, a GPU or just a number, has a worker; a cell takes one or more of the free ones."""
    workers: dict[int, _Worker] = {}
    free = set(range(len(gpus) or jobs))
    taken: dict[int, list[int]] = {}
    """Place of a busy worker → all places of its cell."""
    try:
        while True:
            while len(taken) < jobs and (cell := queue.next(len(free))) is not None:
                places = sorted(free)[: queue.places(cell)]
                free -= set(places)
                first = places[0]
                taken[first] = places
                if first not in workers or not workers[first].process.is_alive():
                    workers[first] = _Worker(study, folder, gpus[first] if gpus else None)
                workers[first].give(cell, [gpus[place] for place in places] if gpus else [])
            if not taken:
                return
            ready: list[Any] = wait([workers[place].pipe for place in taken])
            for place in [place for place in taken if workers[place].pipe in ready]:
                worker = workers[place]
                assert worker.cell is not None
                cell, worker.cell = worker.cell, None
                seconds, error = worker.result()
                if not worker.process.is_alive():
                    del workers[place]
                    if error is not None:
                        write_record(cell, study, folder, state="failed", seconds=seconds, error=error)
                free |= set(taken.pop(place))
                queue.ended(cell, seconds, error)
    finally:
        _stop(workers.values())


def _stop(workers: Iterable[_Worker]) -> None:
    """With time for a checkpoint; interrupted once more, at once."""
    try:
        for worker in workers:
            worker.ask_to_stop()
        deadline = time.monotonic() + CHECKPOINT_WAIT_S
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
    finally:
        alive = [pid for worker in workers if worker.process.is_alive() and (pid := worker.process.pid) is not None]
        families = [family_of(pid) for pid in alive]
        for worker in workers:
            worker.process.kill()
        for family in families:
            kill(family)


def _serve(pipe: Connection, study: Study, folder: Path, parent: int) -> None:
    """In the child."""
    from sharedqkv.training.pretrain import quiet_transformers

    threading.Thread(target=_die_with_parent, args=(parent,), daemon=True).start()
    os.setsid()  # away from the terminal and its Ctrl-C, to which training would listen
    signal.signal(signal.SIGTERM, _interrupt)
    torch.set_num_threads(study.file.threads)
    quiet_transformers()
    with contextlib.suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        while True:
            cell, gpus = pipe.recv()
            with _log(cell, folder).open("w", encoding="utf-8") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            pipe.send(_run(cell, study, folder, gpus))


def _die_with_parent(parent: int) -> None:
    """A child that outlives a killed parent would write where its successor does."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
