"""A study as a user runs it: to its report, in one process or several, killed, changed, with a failing cell."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
from process_helpers import is_running, wait_for
from study_helpers import TINY, write_study

import sharedqkv_console
from sharedqkv.evidence.report import strip_timed
from sharedqkv.study.launch import family_of
from sharedqkv.study.shipped import SHIPPED


def run(study: str, output, *more: str) -> int:
    return sharedqkv_console.main(["study", study, "--output", str(output), *more])


def report(output) -> str:
    return strip_timed((output / "report" / "index.html").read_text(encoding="utf-8"))


def predictions(output) -> dict[str, str]:
    return {str(file.relative_to(output)): file.read_text() for file in sorted(output.rglob("*.jsonl"))
            if "predictions" in file.parts or "robustness" in file.parts}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The study run in this process, without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    assert run(write_study(folder), folder / "out", "--jobs", "1") == 0
    return folder / "out"


def test_it_ends_with_a_report_of_everything(whole):
    page = report(whole)
    for part in ("A tiny study", "standard", "shared", "sentiment", "entailment", "keyboard", "The old baker smiles"):
        assert part.lower() in page.lower()
    study = json.loads((whole / "study.json").read_text())
    assert study["state"] == "done"
    assert {cell["state"] for cell in study["cells"].values()} == {"done"}
    assert len(predictions(whole)) > 30


def test_processes_give_the_same_numbers(whole, tmp_path):
    with_loader = TINY.replace("rows_per_step: 4", "rows_per_step: 4\n  workers: 1")  # children of children
    assert run(write_study(tmp_path, with_loader), tmp_path / "out", "--jobs", "2") == 0
    assert predictions(tmp_path / "out") == predictions(whole)


def test_started_again_it_does_nothing_and_a_change_runs_what_it_changes(whole, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    assert run(write_study(tmp_path), out, "--dry-run") == 0
    assert "0 cells to run" in capsys.readouterr().out
    assert run(write_study(tmp_path), out, "--jobs", "1") == 0
    assert "0 cells run, 15 finished before" in capsys.readouterr().out
    assert report(out) == report(whole)
    changed = write_study(tmp_path, TINY.replace("tasks: [sentiment, entailment]", "tasks: [sentiment]"))
    assert run(changed, out, "--dry-run") == 0
    listed = capsys.readouterr().out
    assert "pretrain/shared/0: finished" in listed
    assert "finetune/shared/0: about" in listed
    assert "8 cells to run" in listed


@pytest.mark.parametrize(
    "stage", ["pretrain/shared/0", pytest.param("finetune/shared/0", marks=pytest.mark.slow), "robust/standard/1"]
)
def test_killed_and_started_again_it_ends_with_the_same_report(stage, whole, tmp_path):
    out, study = tmp_path / "out", write_study(tmp_path)
    command = [sys.executable, "-m", "sharedqkv_console", "study", study, "--output", str(out), "--jobs", "2"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not (out / "logs" / f"{stage}.log").exists() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    its_processes = family_of(child.pid)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    wait_for(lambda: not any(is_running(process.pid) for process in its_processes), "they outlive the study")
    assert run(study, out, "--jobs", "1") == 0
    assert predictions(out) == predictions(whole)
    assert report(out) == report(whole)


def test_a_failed_cell_is_told_and_the_report_still_made(whole, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    shutil.rmtree(out / "finetune" / "shared" / "1")
    (out / "cells" / "finetune" / "shared" / "1.json").unlink()
    shutil.rmtree(out / "world" / "tasks" / "entailment")
    assert run(write_study(tmp_path), out, "--jobs", "1") == 1
    captured = capsys.readouterr()
    assert "failed: finetune/shared/1: entailment" in captured.err
    assert "1 failed, 1 left out that need those" in captured.out
    assert "no split train of entailment" in report(out)


def test_a_seed_that_is_no_longer_asked_for_is_not_in_the_report(whole, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    fewer = write_study(tmp_path, TINY.replace("seeds: 2  # pre", "seeds: 1  # pre"))
    assert run(fewer, out, "--jobs", "1") == 0
    assert (out / "finetune" / "shared" / "1").is_dir()
    assert "with 1 seed" in report(out)


def test_a_run_begun_with_other_settings_is_begun_anew(whole, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    (out / "cells" / "pretrain" / "shared" / "0.json").unlink()  # as if killed before it was known whose this is
    other = write_study(
        tmp_path, TINY.replace("max_steps: 4", "max_steps: 6").replace("save_steps: 2", "save_steps: 6")
    )
    assert run(other, out, "--jobs", "1") == 0
    steps = [json.loads(line)["step"] for line in (out / "pretrain/shared/0/metrics.jsonl").open()]
    assert max(steps) == 6


def test_a_bad_file_is_told_before_anything_runs(tmp_path, capsys):
    study = write_study(tmp_path, TINY.replace("max_steps: 4", "max_stepps: 4"))
    assert run(study, tmp_path / "out") == 2
    assert "tiny.yaml, line 17: unknown key 'max_stepps'. Did you mean 'max_steps'?" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_file_named_like_a_shipped_study_does_not_get_its_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quick.yaml").write_text(TINY)
    assert sharedqkv_console.main(["study", "quick.yaml", "--dry-run"]) == 2
    assert "runs/quick belongs to the shipped study of that name: rename" in capsys.readouterr().err
    assert sharedqkv_console.main(["study", "quick.yaml", "--dry-run", "--output", "mine"]) == 0
    assert sharedqkv_console.main(["study", str(SHIPPED / "quick.yaml"), "--dry-run"]) == 0


def test_the_report_is_rebuilt_from_the_folder_alone(whole, tmp_path, capsys):
    copy = tmp_path / "elsewhere"
    shutil.copytree(whole, copy)
    shutil.rmtree(copy / "report")
    assert sharedqkv_console.main(["report", str(copy)]) == 0
    assert report(copy) == report(whole)


def test_a_run_over_several_processes_goes_through_accelerate(tmp_path):
    text = TINY.replace("rows_per_device: 4", "rows_per_device: 2").replace("[standard, shared]", "[shared]")
    alone = text[: text.index("finetune:")].replace("seeds: 2", "seeds: 1")
    for name, more in (("one", ""), ("two", "gpus_per_run: 2\n")):
        assert run(write_study(tmp_path / name, alone + more), tmp_path / name / "out", "--jobs", "1") == 0
    losses = [
        [json.loads(line).get("loss") for line in (tmp_path / name / "out/pretrain/shared/0/metrics.jsonl").open()]
        for name in ("one", "two")
    ]
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-4)
