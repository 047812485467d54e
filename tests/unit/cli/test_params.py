import json

import pytest

import sharedqkv_console
from sharedqkv.models import SIZES


def test_json(capsys):
    arguments = ["params", "--size", "tiny", "--variants", "standard", "shared:bias=true", "--lengths", "64", "--json"]
    assert sharedqkv_console.main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    standard, shared = report["models"]
    assert shared["options"] == {"bias": True}
    assert shared["parameters"]["qkv"] == 128**2 + 4 * 128
    assert shared["saving"]["qkv_parameters"] == 1 - shared["parameters"]["qkv"] / standard["parameters"]["qkv"]
    assert list(standard["flops_per_token"]) == ["64"]


def test_table_is_never_cut_off(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert sharedqkv_console.main(["params", "--size", "tiny", "--variants", "standard", "narrow"]) == 0
    output = capsys.readouterr().out
    assert "…" not in output
    assert "narrow" in output
    assert "66.53 %" in output


@pytest.mark.parametrize("arguments", [["--lengths", "0"], ["--lengths", "many"]])
def test_bad_arguments(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        sharedqkv_console.main(["params", *arguments])
    assert stopped.value.code == 2
    assert arguments[-1] in capsys.readouterr().err


def test_an_unknown_size_lists_the_known(capsys):
    assert sharedqkv_console.main(["params", "--size", "huge"]) == 2
    assert f"unknown size 'huge'; known: {', '.join(SIZES)}" in capsys.readouterr().err


def test_the_help_names_every_size(capsys):
    with pytest.raises(SystemExit):
        sharedqkv_console.main(["params", "--help"])
    *most, last = SIZES
    assert f"{', '.join(most)} or {last}" in " ".join(capsys.readouterr().out.split())


def test_longer_than_bert(capsys):
    assert (
        sharedqkv_console.main(["params", "--size", "tiny", "--variants", "shared", "--lengths", "1024", "--json"]) == 0
    )
    assert "1024" in json.loads(capsys.readouterr().out)["models"][0]["flops_per_token"]
