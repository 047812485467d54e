import hashlib
import multiprocessing
import os
import signal

import pytest

from sharedqkv.data.files import atomic_write, sha256_of


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


def killed_while_writing(path):
    with atomic_write(path) as file:
        file.write(b"half of it")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_kill_leaves_what_was_there_before(tmp_path):
    (tmp_path / "a").write_bytes(b"before")
    process = multiprocessing.get_context("fork").Process(target=killed_while_writing, args=(tmp_path / "a",))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert (tmp_path / "a").read_bytes() == b"before"
