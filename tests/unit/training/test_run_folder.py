import json
import os

import pytest

from sharedqkv.training.run_folder import RunFolder, environment


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create({"kind": "pretrain"})
    return folder


def test_life_of_a_run(run):
    run.begin_sitting(None)
    assert run.info()["state"] == "running"
    run.begin_sitting("checkpoint-5")
    run.set_state("done", step=9)
    info = run.info()
    assert (info["state"], info["step"], len(info["sittings"])) == ("done", 9, 2)
    assert info["environment"]["packages"]["torch"]


def test_metrics_after_the_checkpoint_are_cut(run):
    for step in (5, 10, 15):
        run.append_metrics({"step": step, "loss": 1 / step})
    with open(run.metrics_file, "a") as file:
        file.write('{"step": 20, "lo')  # a crash in the middle of a line
    assert [record["step"] for record in run.metrics()] == [5, 10, 15]
    run.cut_metrics_after(10)
    assert run.metrics() == [{"step": 5, "loss": 1 / 5}, {"step": 10, "loss": 1 / 10}]


def test_not_a_run_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is no run folder: run\.json is missing"):
        RunFolder(tmp_path).info()
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json is damaged"):
        RunFolder(tmp_path).info()


def test_an_unwritable_place_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"file/run cannot be written .* choose another --output"):
        RunFolder(tmp_path / "file" / "run").create({})


def test_environment_is_json(monkeypatch):
    assert json.loads(json.dumps(environment()))["cpu_count"] == os.cpu_count()
