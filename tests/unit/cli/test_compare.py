"""What `sharedqkv compare` takes."""

import json

import pytest

import sharedqkv_console


@pytest.mark.parametrize(
    "arguments", [[], ["a"], ["a", "b", "c"], ["--a", "a"], ["--b", "b"], ["a", "b", "--a", "c"], ["a", "--b", "b"]]
)
def test_two_models_are_needed(arguments, capsys):
    assert sharedqkv_console.main(["compare", *arguments]) == 2
    assert "error: give two runs" in capsys.readouterr().err


def test_folders_that_are_no_runs_are_named(tmp_path, capsys):
    assert sharedqkv_console.main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert f"{tmp_path / 'a'} is no run folder" in capsys.readouterr().err


def test_a_run_without_finished_cells_is_told(tmp_path, capsys):
    model = {"variant": "shared", "pretraining_seed": 0, "sha256": "x"}
    (tmp_path / "run.json").write_text(json.dumps({"kind": "finetune", "model": model}))
    assert sharedqkv_console.main(["compare", str(tmp_path), str(tmp_path)]) == 2
    assert "no task in common" in capsys.readouterr().err
