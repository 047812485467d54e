"""A command that outlives the one that began it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[4] / "benchmarks" / "evidence" / "detached.sh"
pytestmark = pytest.mark.skipif(shutil.which("setsid") is None, reason="needs bash and setsid")


def call(*arguments):
    return subprocess.run(["bash", SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def test_it_goes_on_after_the_first_call_and_is_begun_once(tmp_path):
    folder = tmp_path / "a folder"
    command = ("bash", "-c", 'echo begun "$1"; sleep 3; echo ended; exit 3', "-", "two words")
    first = call(folder, 0, *command)
    assert first.returncode == 0
    assert "it goes on" in first.stdout
    second = call(folder, 30, *command)
    assert "ended with 3" in second.stdout
    assert (folder / "log.txt").read_text() == "begun two words\nended\n"


def test_mps_ends_with_the_command(tmp_path, monkeypatch):
    control = tmp_path / "bin" / "nvidia-cuda-mps-control"
    control.parent.mkdir()
    control.write_text(f'#!/bin/bash\necho "$CUDA_MPS_PIPE_DIRECTORY: ${{1:-$(cat)}}" >> "{tmp_path}/told"\n')
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{control.parent}:{os.environ['PATH']}")
    folder = tmp_path / "folder"
    command = f'echo "$CUDA_MPS_PIPE_DIRECTORY: at work" >> "{tmp_path}/told"'
    assert "ended with 0" in call(folder, 30, "bash", "-c", command).stdout
    assert (tmp_path / "told").read_text().splitlines() == [
        f"{folder}/mps: {what}" for what in ("-d", "at work", "quit -t 10")
    ]


def test_a_call_without_a_command_says_what_is_wanted(tmp_path):
    refused = call(tmp_path, 1)
    assert (refused.returncode, refused.stderr) == (2, "usage: detached.sh FOLDER SECONDS COMMAND ...\n")
