"""Processes that tests start, and wait for."""

import time
from collections.abc import Callable

import psutil

PATIENCE_S = 60
"""A machine may be busy with other tests."""


def wait_for(condition: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Not so a zombie, which nobody may reap where the first process of a container does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
