"""What the baseline would have reached in another model's time, from planted losses and times."""

import csv
import math

import pytest
from report_helpers import make_bench_record, make_info, make_pretraining

from sharedqkv.evidence.report import build_report
from sharedqkv.evidence.report.collect import read_study
from sharedqkv.evidence.report.measures import measure
from sharedqkv.evidence.report.sections.equal_time import equal_time_sections
from sharedqkv.tasks.cells import write_json

STEPS = {
    "standard:sdpa": [0.10],
    "shared:sdpa": [0.085],
    "narrow:sdpa": [0.07],
    "symmetric:sdpa": [0.12],
    "shared:sdpa,position_embedding_type=rotary": [0.09],
}
LOSSES = {"shared": 3.0, "narrow": 2.5, "symmetric": 2.4}


def line(tokens):
    """Loss of the baseline's first seed."""
    return 5.0 - 0.2 * math.log(tokens)


@pytest.fixture
def folder(tmp_path):
    """The baseline with 240, 270 and 300 thousand tokens; its second seed ends 0.1 nats higher."""
    info = make_info(["standard", *LOSSES], 2)
    del info["cells"]["bench"]
    rotary = {**info["entrants"][1], "name": "shared, rotary", "slug": "r", "position_embedding_type": "rotary"}
    info["cells"]["pretrain/r/0"] = {"state": "done"}
    write_json(tmp_path / "study.json", {**info, "entrants": [*info["entrants"], rotary]})
    make_pretraining(tmp_path / "pretrain" / "standard" / "0", "standard", 0, line(300_000))
    make_pretraining(tmp_path / "pretrain" / "standard" / "1", "standard", 1, line(300_000) + 0.1)
    for tokens in (240_000, 270_000):
        run = tmp_path / "checks" / "standard" / f"0-tokens-{tokens}"
        make_pretraining(run, "standard", 0, line(tokens), tokens=tokens)
    for variant, loss in LOSSES.items():
        for seed in (0, 1):
            make_pretraining(tmp_path / "pretrain" / variant / str(seed), variant, seed, loss + 0.02 * seed)
    make_pretraining(tmp_path / "pretrain" / "r" / "0", "shared", 0, 1.0)
    (tmp_path / "bench").mkdir()
    write_json(tmp_path / "bench" / "record.json", make_bench_record(STEPS))
    return tmp_path


def sections(folder):
    return equal_time_sections(measure(read_study(folder)))


def test_the_baseline_is_read_off_its_line_at_the_other_model_s_time(folder):
    (section,) = sections(folder)
    table, _ = section.blocks
    assert [row[0].text for row in table.rows] == list(LOSSES), "not the baseline, nor one with other positions"
    for row, step in zip(table.rows, (0.85, 0.7, 1.2), strict=True):
        found = dict(zip(table.columns, row, strict=True))
        expected = line(step * 300_000) + 0.05
        assert found["time"].value == pytest.approx(step)
        assert found["baseline's tokens"].value == pytest.approx(step * 300_000)
        assert found["baseline's loss"].value == pytest.approx(expected)
        assert found["loss"].value == pytest.approx(LOSSES[row[0].text] + 0.01)
        assert found["difference"].value == pytest.approx(LOSSES[row[0].text] + 0.01 - expected)


def test_what_lies_outside_the_budgets_is_told(folder):
    table, note = sections(folder)[0].blocks
    assert [row[-1].text for row in table.rows] == ["–", "extrapolated", "extrapolated"]
    for words in ("seed 0", "240 k, 270 k and 300 k", "least squares", "+0.0500 nats", "interpolation", "tested"):
        assert words in note.text.replace("\N{NO-BREAK SPACE}", " ")


def test_the_line_goes_through_all_budgets(folder):
    """Nearest to three points that lie on no line is not the line through two of them."""
    run = folder / "checks" / "standard" / "0-tokens-255000"
    make_pretraining(run, "standard", 0, line(255_000) + 0.03, tokens=255_000)
    table, note = sections(folder)[0].blocks
    loss = table.rows[0][4].value
    assert line(255_000) + 0.05 + 0.001 < loss < line(255_000) + 0.05 + 0.029
    assert "than 0.0000 nats" not in note.text


@pytest.mark.parametrize("missing", ["bench", "a budget", "the seed of the budgets", "the baseline in the bench"])
def test_nothing_is_shown_where_a_piece_is_missing(folder, missing):
    assert sections(folder)
    if missing == "bench":
        (folder / "bench" / "record.json").unlink()
    elif missing == "a budget":
        (folder / "checks" / "standard" / "0-tokens-240000" / "run.json").unlink()
    elif missing == "the seed of the budgets":
        (folder / "pretrain" / "standard" / "0" / "run.json").unlink()
    else:
        steps = {name: seconds for name, seconds in STEPS.items() if name != "standard:sdpa"}
        write_json(folder / "bench" / "record.json", make_bench_record(steps))
    assert sections(folder) == []


def test_it_is_in_the_report_after_pretraining(folder):
    report = build_report(folder).parent
    text = (report / "report.md").read_text(encoding="utf-8")
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles[titles.index("## Pre-training") + 1] == "## At equal time"
    with open(report / "tables" / "timed_equal_time_standard.csv", encoding="utf-8", newline="") as file:
        assert [row["remark"] for row in csv.DictReader(file)] == ["–", "extrapolated", "extrapolated"]
    (folder / "bench" / "record.json").unlink()
    assert "At equal time" not in (build_report(folder).parent / "report.md").read_text(encoding="utf-8")
