import json
import os
import shutil
import subprocess

import pytest

from sharedqkv.training import run_folder
from sharedqkv.training.run_folder import RunFolder, environment, git_state


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


def test_a_run_tells_its_command_but_not_where_it_is_installed(run, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/home/me/.venv/bin/sharedqkv", "pretrain", "tiny_cpu"])
    run.begin_sitting(None)
    assert run.info()["sittings"][0]["command"] == ["sharedqkv", "pretrain", "tiny_cpu"]


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


def test_a_bare_copy_names_its_commit(monkeypatch):
    monkeypatch.setenv("SHAREDQKV_GIT_SHA", "abc")
    assert git_state() == {"sha": "abc", "dirty": None}


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_checkout_names_its_commit_and_whether_it_was_changed(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("GIT_")]:  # set where a hook of git runs the tests
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.delenv("SHAREDQKV_GIT_SHA")
    monkeypatch.setattr(run_folder, "__file__", str(tmp_path / "checkout" / "code.py"))

    def git(*arguments):
        identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false")
        return subprocess.check_output(["git", *identity, *arguments], cwd=tmp_path / "checkout", text=True).strip()

    (tmp_path / "checkout").mkdir()
    assert git_state() is None
    git("init", "--quiet")
    (tmp_path / "checkout" / "code.py").write_text("1")
    git("add", "code.py")
    git("commit", "--quiet", "--message=first")
    sha = git("rev-parse", "HEAD")
    assert git_state() == {"sha": sha, "dirty": False}
    (tmp_path / "checkout" / "code.py").write_text("2")
    assert git_state() == {"sha": sha, "dirty": True}
