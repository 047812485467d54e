"""What `sharedqkv predict` takes; its answers are tested where there is a model."""

import pytest

import sharedqkv_console


def test_a_folder_that_is_no_run_is_named(tmp_path, capsys):
    assert sharedqkv_console.main(["predict", str(tmp_path), "--text", "a"]) == 2
    assert "is no run folder" in capsys.readouterr().err


def test_text_and_file_exclude_each_other(tmp_path, capsys):
    with pytest.raises(SystemExit):
        sharedqkv_console.main(["predict", str(tmp_path), "--text", "a", "--file", "b"])
    assert "not allowed with" in capsys.readouterr().err
