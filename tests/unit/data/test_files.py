import hashlib
import subprocess
import sys

import pytest

from sharedqkv.data.files import atomic_write, sha256_of

KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from sharedqkv.data.files import atomic_write
with atomic_write(Path(sys.argv[1])) as file:
    file.write(b"half of it")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_file_is_there_whole(tmp_path):
    with atomic_write(tmp_path / "a") as file:
        file.write(b"all of it")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"all of it"
    assert len(list(tmp_path.iterdir())) == 1
    assert sha256_of(tmp_path / "a") == hashlib.sha256(b"all of it").hexdigest()


def write_half(path):
    with atomic_write(path) as file:
        file.write(b"half of it")
        raise RuntimeError("stopped")


def test_an_error_leaves_what_was_there_before(tmp_path):
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(RuntimeError, match="stopped"):
        write_half(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"before"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_kill_leaves_what_was_there_before(tmp_path):
    (tmp_path / "a").write_bytes(b"before")
    subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path / "a")], check=False)
    assert (tmp_path / "a").read_bytes() == b"before"
