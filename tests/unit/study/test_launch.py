"""A run over several processes: it listens when asked to stop, and nothing of it outlives whoever started it."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from process_helpers import PATIENCE_S, is_running, wait_for
from study_helpers import TINY, write_study

from sharedqkv.study import execute, launch
from sharedqkv.study.cells import cells_of
from sharedqkv.study.plan import load_study
from sharedqkv.study.stages import run_cell
from sharedqkv.training.checkpoints import newest_complete
from sharedqkv.training.run_folder import RunFolder

LONG = (
    TINY[: TINY.index("finetune:")]
    .replace("[standard, shared]", "[shared]")
    .replace("seeds: 2", "seeds: 1")
    .replace("rows_per_device: 4", "rows_per_device: 2\n  workers: 1")
    .replace("max_steps: 4", "max_steps: 100000")
    .replace("save_steps: 2", "save_steps: 100000")
    .replace("eval_steps: 4", "eval_steps: 100000")
    + "gpus_per_run: 2\n"
)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Of a pre-training without end in two processes."""
    folder = tmp_path_factory.mktemp("launched")
    return write_study(folder, LONG), folder / "out"


STARTED: list[tuple[subprocess.Popen, Path]] = []


@pytest.fixture(autouse=True)
def _ended():
    """One test that fails must not break the next."""
    yield
    while STARTED:
        child, folder = STARTED.pop()
        child.kill()
        child.wait()
        for pid in processes_of(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def processes_of(folder: Path) -> list[int]:
    """Those that have the folder in their command line, but for the study itself and its workers."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if f"{folder}/pretrain".encode() in command:
            found.append(int(entry.name))
    return found


def start(study: str, folder: Path, *more: str, processes: int = 3) -> subprocess.Popen:
    """The command, when its run has made its first steps."""
    run = RunFolder(folder / "pretrain/shared/0")
    before = len(run.metrics())
    command = [sys.executable, "-m", "sharedqkv_console", "study", study, "--output", str(folder), *more]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    STARTED.append((child, folder))
    what = "it never began to train"
    wait_for(lambda: len(run.metrics()) > before or child.poll() is not None, what, 10 * PATIENCE_S)
    assert child.poll() is None, child.communicate()[0].decode()
    assert len(processes_of(folder)) >= processes  # by default the launcher and two that train
    return child


@pytest.mark.parametrize(
    ("jobs", "number"), [("1", signal.SIGINT), pytest.param("2", signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_interrupted_it_saves_a_checkpoint_and_leaves_nothing_running(jobs, number, study):
    path, folder = study
    run = RunFolder(folder / "pretrain/shared/0")
    before, _ = newest_complete(run.checkpoints)
    child = start(path, folder, "--jobs", jobs)
    os.killpg(child.pid, number)  # as a terminal does, or a scheduler
    output = child.communicate(timeout=launch.CHECKPOINT_WAIT_S + PATIENCE_S)[0].decode()
    assert child.returncode == 130
    wait_for(lambda: processes_of(folder) == [], "it outlives the study")
    assert run.info()["state"] == "stopped"
    saved, skipped = newest_complete(run.checkpoints)
    assert saved is not None
    assert saved != before
    assert skipped == []
    assert "the same command goes on" in output
    assert "Traceback" not in output
    assert "step/s" not in output  # its progress is in the log
    assert "step/s" in (folder / "logs/pretrain/shared/0.log").read_text()


@pytest.mark.parametrize("gpus_per_run", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_signal_to_every_process_of_a_job_loses_no_checkpoint(gpus_per_run, tmp_path):
    """As schedulers do it: the study then asks its workers besides, so that they are signalled twice."""
    text = LONG.replace("gpus_per_run: 2", f"gpus_per_run: {gpus_per_run}")
    path, folder = write_study(tmp_path, text), tmp_path / "out"
    child = start(path, folder, "--jobs", "2", processes=0 if gpus_per_run == 1 else 3)
    for process in [*psutil.Process(child.pid).children(recursive=True)[::-1], psutil.Process(child.pid)]:
        process.terminate()
        time.sleep(0.02)
    child.communicate(timeout=launch.CHECKPOINT_WAIT_S + PATIENCE_S)
    run = RunFolder(folder / "pretrain/shared/0")
    assert newest_complete(run.checkpoints)[0] is not None
    assert run.info()["state"] == "stopped"
    wait_for(lambda: processes_of(folder) == [], "it outlives the study")


def test_nothing_outlives_a_killed_study(study):
    path, folder = study
    child = start(path, folder, "--jobs", "2")
    child.kill()
    child.communicate()
    wait_for(lambda: processes_of(folder) == [], "it outlives the study")


DEAF = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
pathlib.Path({told!r}).write_text(str(child.pid))
time.sleep(600)
"""


def test_one_that_hangs_does_not_outlive_the_study_either(study, tmp_path, monkeypatch):
    path, folder = study
    plan, told = load_study(path), tmp_path / "pid"
    monkeypatch.setattr(launch, "_command", lambda *_: [sys.executable, "-c", DEAF.format(told=str(told))])
    monkeypatch.setattr(launch, "CHECKPOINT_WAIT_S", 0.1)

    def interrupt():
        wait_for(lambda: told.exists() and told.read_text(), "it never began")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run_cell(cells_of(plan)[1], plan, folder, [])
    wait_for(lambda: not is_running(int(told.read_text())), "it outlives the study")


def test_nor_does_one_of_a_worker_that_does_not_stop(tmp_path, monkeypatch):
    told = tmp_path / "pid"
    command = [sys.executable, "-c", DEAF.format(told=str(told))]
    process = multiprocessing.get_context("spawn").Process(target=subprocess.run, args=(command,))
    process.start()
    wait_for(lambda: told.exists() and told.read_text(), "it never began")
    monkeypatch.setattr(execute, "CHECKPOINT_WAIT_S", 0.1)
    execute._stop([SimpleNamespace(process=process, ask_to_stop=lambda: None)])
    process.join(PATIENCE_S)
    assert process.exitcode == -signal.SIGKILL
    wait_for(lambda: not is_running(int(told.read_text())), "it outlives the study")


def test_the_processes_get_all_gpus_of_the_cell_and_a_port_of_their_own(study, monkeypatch):
    path, folder = study
    plan = load_study(path)
    called = {}

    def popen(command, **options):
        called.update(command=command, **options)
        raise OSError("far enough")

    monkeypatch.setattr(launch.subprocess, "Popen", popen)
    with pytest.raises(OSError, match="far enough"):
        run_cell(cells_of(plan)[1], plan, folder, ["2", "3"])
    assert called["env"]["CUDA_VISIBLE_DEVICES"] == "2,3"
    command = " ".join(called["command"])
    assert "--num_processes 2" in command
    assert "--main_process_port 0" in command
