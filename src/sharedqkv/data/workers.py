"""Tasks on several processes, drawn one by one, so that a long list of them never lies in memory."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, TypeVar

Result = TypeVar("Result")


class Workers:
    """A pool of processes; with one process everything runs in this one.

    On Linux the processes are forks: they start at once and share the memory of the imported libraries. They are
    made on entry: do that before anything starts threads, which do not survive a fork.
    """

    def __init__(self, processes: int):
        self._processes = processes
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        if self._processes > 1:
            context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
            self._pool = ProcessPoolExecutor(self._processes, context, initializer=_start_worker)
            self._pool.submit(os.getpid).result()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def run(self, function: Callable[..., Result], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        """`function(*task)` for every task, results in order of completion."""
        if self._pool is None:
            yield from (function(*task) for task in tasks)
            return
        running: set[Future[Result]] = set()
        try:
            for task in tasks:
                running.add(self._pool.submit(function, *task))
                if len(running) > self._processes + 1:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        except BrokenProcessPool:
            raise OSError(
                "a worker process was killed, most often for want of memory. What is finished is kept: "
                "run the same command again, with fewer --processes if memory is short"
            ) from None


def _start_worker() -> None:
    # Ctrl-C is for the first process: it lets the others finish their task.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """A worker whose first process was killed would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
