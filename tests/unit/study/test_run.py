"""What study.json says of how a study was run."""

import json

import pytest
from study_helpers import write_study

from sharedqkv.study import run
from sharedqkv.study.plan import load_study


@pytest.fixture
def told(tmp_path, monkeypatch):
    """What study.json says of runs that shared a device, after a start on a machine with these GPUs."""
    study = load_study(write_study(tmp_path))
    monkeypatch.setattr(run, "run_cells", lambda *_: None)

    def start(output, jobs, gpus, finished=()):
        monkeypatch.setattr(run, "visible_gpus", lambda: gpus)
        monkeypatch.setattr(run, "is_finished", lambda cell, *_: cell.stage in finished)
        run.run_study(study, str(tmp_path / output), jobs)
        return json.loads((tmp_path / output / "study.json").read_text())["side_by_side"]

    return start


def test_cells_at_once_share_a_cpu_and_never_a_gpu(told):
    assert told("cpu", jobs=1, gpus=[]) == 1
    assert told("cpu", jobs=2, gpus=[]) == 2
    assert told("cpu", jobs=1, gpus=[]) == 2, "those of before did"
    assert told("gpus", jobs=2, gpus=["0", "1"]) == 1


def test_what_shares_a_cpu_after_pretraining_does_not_count(told):
    assert told("cpu", jobs=1, gpus=[]) == 1
    assert told("cpu", jobs=2, gpus=[], finished=("prepare", "pretrain")) == 1
