import os
import signal
import subprocess
import sys

import pytest
from process_helpers import is_running, wait_for

from sharedqkv.data.workers import Workers


def square(number):
    return number * number


def fail(number):
    raise ValueError(f"task {number}")


def die(number):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("processes", [1, 3])
def test_every_task_is_done_once(processes):
    with Workers(processes) as workers:
        assert sorted(workers.run(square, ((number,) for number in range(30)))) == [n * n for n in range(30)]
        assert list(workers.run(square, [])) == []


@pytest.mark.parametrize("processes", [1, 2])
def test_tasks_are_drawn_when_there_is_room_for_them(processes):
    drawn = []

    def tasks():
        for number in range(50):
            drawn.append(number)
            yield (number,)

    with Workers(processes) as workers:
        for done, _ in enumerate(workers.run(square, tasks())):
            assert len(drawn) <= done + processes + 2


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_in_a_task_comes_out(processes):
    with Workers(processes) as workers, pytest.raises(ValueError, match="task 7"):
        list(workers.run(fail, [(7,)]))


def test_a_killed_worker_is_an_error_with_a_remedy():
    with (
        Workers(2) as workers,
        pytest.raises(OSError, match=r"a worker process was killed.*run the same command again"),
    ):
        list(workers.run(die, [(1,)]))


def test_workers_end_when_the_first_process_is_killed(tmp_path):
    script = """
import os, sys, time
from sharedqkv.data.workers import Workers
with Workers(2) as workers:
    print(*set(workers.run(os.getpid, [()] * 20)), flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        pids = [int(pid) for pid in process.stdout.readline().split()]
        process.kill()
    assert pids
    wait_for(lambda: not any(is_running(pid) for pid in pids), "workers outlive the process that made them")
