"""Promise 6, second half: a damaged checkpoint is named, never used."""

import pytest

from sharedqkv.training import checkpoints


@pytest.fixture
def folder(tmp_path):
    for step in (10, 20, 100):
        path = tmp_path / f"checkpoint-{step}"
        (path / "inner").mkdir(parents=True)
        (path / "model.safetensors").write_bytes(bytes([step]) * 100)
        (path / "inner" / "state.pt").write_bytes(b"state")
        checkpoints.commit(path)
    (tmp_path / "checkpoint-x").mkdir()
    return tmp_path


def test_newest_by_step_not_by_name(folder):
    assert checkpoints.newest_complete(folder) == (folder / "checkpoint-100", [])


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda path: (path / "complete.json").unlink(), "not finished"),
        (lambda path: (path / "complete.json").write_text("{"), "complete.json cannot be read"),
        (lambda path: (path / "model.safetensors").write_bytes(b"\x64" * 99), "model.safetensors is damaged"),
        (lambda path: (path / "model.safetensors").write_bytes(b"\x65" + b"\x64" * 99), "model.safetensors is damaged"),
        (lambda path: (path / "inner" / "state.pt").unlink(), "state.pt is missing"),
    ],
)
def test_damaged_ones_are_skipped_with_a_reason(folder, harm, reason):
    harm(folder / "checkpoint-100")
    found, skipped = checkpoints.newest_complete(folder)
    assert found == folder / "checkpoint-20"
    assert [bad.path for bad in skipped] == [folder / "checkpoint-100"]
    assert reason in skipped[0].reason


def test_none_left(tmp_path):
    assert checkpoints.newest_complete(tmp_path / "nowhere") == (None, [])


def test_rotation_counts_committed_ones_only(folder):
    (folder / "checkpoint-100" / "complete.json").unlink()
    checkpoints.rotate(folder, keep=1)
    assert sorted(path.name for path in folder.glob("checkpoint-*0")) == ["checkpoint-20"]
