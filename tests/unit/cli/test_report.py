from report_helpers import make_info

import sharedqkv_console
from sharedqkv.tasks.cells import write_json


def run(monkeypatch, *arguments):
    monkeypatch.setitem(sharedqkv_console.COMMANDS, "report", "")
    return sharedqkv_console.main(["report", *map(str, arguments)])


def test_says_where_the_report_lies(tmp_path, monkeypatch, capsys):
    write_json(tmp_path / "study.json", make_info(["standard"], 1))
    assert run(monkeypatch, tmp_path, "--output", tmp_path / "out") == 0
    assert f"The report lies in {tmp_path / 'out' / 'index.html'}" in capsys.readouterr().out


def test_a_wrong_folder_is_named(tmp_path, monkeypatch, capsys):
    assert run(monkeypatch, tmp_path) == 2
    assert f"{tmp_path} is no study folder" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_named(tmp_path, monkeypatch, capsys):
    write_json(tmp_path / "study.json", make_info(["standard"], 1))
    assert run(monkeypatch, tmp_path, "--output", tmp_path / "study.json") == 2
    assert "study.json cannot be written" in capsys.readouterr().err
