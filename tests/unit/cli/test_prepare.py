import json

import pytest

from sharedqkv.cli import prepare as command
from sharedqkv_console import main

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "a", "b", "##b"]), encoding="utf-8")
    (tmp_path / "text.jsonl").write_text(json.dumps({"body": "a bb " * 100}) + "\n", encoding="utf-8")
    return tmp_path


def arguments(corpus, *more):
    base = ["prepare", "--output", str(corpus / "out"), "--source", str(corpus / "text.jsonl"), "--processes", "1"]
    return [*base, "--tokenizer", str(corpus / "vocab.txt"), *more]


def test_from_the_command_line(corpus, capsys, caplog):
    options = ["--text-column", "body", "--length", "16", "--layout", "packed", "--validation-fraction", "0"]
    assert main(arguments(corpus, *options)) == 0
    printed = capsys.readouterr().out
    assert "train: 22 rows of 16, 300 tokens, 1 shards" in printed
    assert "1 documents, 0 duplicates dropped" in printed
    assert main(arguments(corpus, *options)) == 0
    assert "already prepared" in caplog.text


def test_an_error_is_one_line_without_a_traceback(corpus, capsys):
    assert main(arguments(corpus)) == 2
    error = capsys.readouterr().err
    assert error.startswith("sharedqkv prepare: error: ")
    assert "text.jsonl: line 1 has no 'text' (it has: body)" in error
    assert "Traceback" not in error


def test_help_is_made_of_the_docstrings(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["prepare", "--help"])
    assert caught.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "--length LENGTH tokens in a row, special ones included (default: 128)" in printed
    assert "--layout {chunks,packed,pairs}" in printed
    assert "--cased keep upper case" in printed


def test_interrupted_it_says_how_to_go_on(corpus, capsys, monkeypatch):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "prepare", interrupted)
    assert main(arguments(corpus)) == 130
    assert "the same command goes on from there" in capsys.readouterr().err
