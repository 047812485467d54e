"""`sharedqkv bench`, as a user meets it."""

import csv
import json

import pytest

import sharedqkv_console
from sharedqkv.accounting.bench import measure
from sharedqkv.accounting.bench.roofline import Peaks

TINY = ["--size", "tiny", "--layers", "1", "--rows", "2", "--length", "8", "--rounds", "2", "--steps", "1"]


@pytest.fixture(autouse=True)
def no_waiting_for_peaks(monkeypatch):
    monkeypatch.setattr(measure, "measure_peaks", lambda *_: Peaks(1e12, 1e11))


def bench(*arguments):
    return sharedqkv_console.main(["bench", *TINY, *arguments])


def test_all_options_end_in_tables_a_record_and_a_plot(tmp_path, capsys):
    output = tmp_path / "record"
    who = ["--variants", "standard", "shared:fused", "--backends", "sdpa", "eager", "--peers", "hf_bert", "modernbert"]
    how = ["--dropout", "0.1", "--warmup", "1", "--seed", "3", "--passes", "train", "forward"]
    assert bench(*who, *how, "--output", str(output)) == 0
    captured = capsys.readouterr()
    names = ["standard:sdpa", "standard:eager", "shared:fused", "hf_bert", "modernbert"]
    assert all(name in captured.out for name in (*names, "training step, 2 rounds", "forward pass", "floor / median"))
    assert "shared:fused: 4,185,658 parameters" in captured.err
    assert "train: round 2 of 2" in captured.err
    record = json.loads((output / "record.json").read_text())
    assert record["state"] == "done"
    assert record["config"]["seed"] == 3
    assert {"git", "packages"} <= set(record["environment"])
    assert list(record["entrants"]) == names
    assert record["passes"]["train"]["equality"][0]["same_as"] == "standard:sdpa"
    with open(output / "results.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["pass"], row["entrant"]) for row in rows] == [(k, n) for k in ("train", "forward") for n in names]
    assert float(rows[2]["speed"]) == pytest.approx(float(rows[0]["median_ms"]) / float(rows[2]["median_ms"]))
    assert (output / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (output / "bench.svg").read_text()


def test_rotary_in_bfloat16_without_a_record(capsys):
    assert bench("--variants", "shared", "--positions", "rotary", "--bf16", "--passes", "forward") == 0
    assert "training step" not in capsys.readouterr().out


def test_an_interruption_prints_what_there_is(tmp_path, monkeypatch, capsys):
    def interrupted(run):
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "memory_of", interrupted)
    assert bench("--output", str(tmp_path)) == 130
    captured = capsys.readouterr()
    assert "training step, 2 rounds" in captured.out
    assert "Interrupted" in captured.err
    assert json.loads((tmp_path / "record.json").read_text())["state"] == "interrupted"


def test_an_interruption_before_the_first_round_prints_no_table(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "measure_peaks", interrupted)
    assert bench() == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("sharedqkv bench: interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "0"], "error: --rows 0: expected at least 1"),
        (["--size", "huge"], "error: unknown size 'huge'"),
        (["--variants", "shard"], "error: unknown attention_variant 'shard'. Did you mean 'shared'?"),
        (["--backends", "flash"], "error: standard:flash: unknown backend 'flash'; known: eager"),
    ],
)
def test_mistakes_are_told_before_anything_runs(arguments, message, capsys):
    assert bench(*arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_an_output_that_cannot_be_written_is_told_first(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert bench("--output", str(tmp_path / "file")) == 2
    assert "choose another --output" in capsys.readouterr().err
