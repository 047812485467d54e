"""Times from the study's own stage, or from a record of `sharedqkv bench` in the study's folder."""

import pytest
from report_helpers import make_bench, make_bench_record, make_info, make_pretraining

from sharedqkv.accounting.bench.entrants import choose_entrants
from sharedqkv.accounting.bench.measure import measure as run_bench
from sharedqkv.accounting.bench.record import record_of
from sharedqkv.accounting.bench.settings import Settings
from sharedqkv.evidence.report import build_report
from sharedqkv.evidence.report.collect import read_study
from sharedqkv.evidence.report.measures import measure
from sharedqkv.evidence.report.sections.costs import speed_section
from sharedqkv.tasks.cells import write_json

SEVEN = "standard:num_hidden_layers=7,intermediate_size=48"
STEPS = {
    "standard:sdpa": [0.050, 0.051],
    "standard:fused": [0.040, 0.042],
    "shared:fused": [0.030, 0.031],
    "standard:fused,intermediate_size=48,num_hidden_layers=7": [0.035, 0.035],
    "hf_bert": [0.060, 0.060],
    "narrow:fused": [0.020, 0.020],
}


@pytest.fixture
def folder(tmp_path):
    """Without a bench of its own. `standard` and `shared` were trained with the fused kernels, the others not yet."""
    info = make_info(["standard", "shared", SEVEN], 1)
    info["entrants"][2] |= {"variant": "standard", "model": {"num_hidden_layers": 7, "intermediate_size": 48}}
    del info["cells"]["bench"]
    write_json(tmp_path / "study.json", info)
    for variant in ("standard", "shared"):
        run = tmp_path / "pretrain" / variant / "0"
        make_pretraining(run, variant, 0, 2.0, attn_implementation="fused")
    return tmp_path


def add_record(folder, record):
    (folder / "bench").mkdir(exist_ok=True)
    write_json(folder / "bench" / "record.json", record)


def speed_of(folder):
    table, *paragraphs = speed_section(measure(read_study(folder))).blocks
    return table, " ".join(paragraph.text for paragraph in paragraphs)


def test_entrants_are_the_models_with_their_options_on_the_backend_they_were_trained_with(folder):
    add_record(folder, make_bench_record(STEPS))
    study = read_study(folder)
    assert study.problems == {}
    assert {name: timing.train_step_s for name, timing in study.bench.entrants.items()} == {
        "standard": [0.040, 0.042],
        "shared": [0.030, 0.031],
        SEVEN: [0.035, 0.035],
    }
    assert study.bench.entrants["shared"].peak_memory_bytes == 1_000_000 * len("shared:fused")


@pytest.mark.parametrize(("setting", "measured"), [("norm_placement", "pre"), ("dropout", 0.1)])
def test_other_steps_than_those_trained_are_refused(folder, setting, measured):
    record = make_bench_record(STEPS)
    record["config"][setting] = measured
    add_record(folder, record)
    study = read_study(folder)
    assert study.bench is None
    assert f"was measured with {setting} {measured}" in study.problems["bench/record.json"]


def test_what_was_measured_how_stands_under_the_table(folder):
    add_record(folder, make_bench_record(STEPS))
    table, words = speed_of(folder)
    assert "by `sharedqkv bench` on models of size tiny" in words
    assert "64 rows of 32 tokens, bf16, compiled, attention by fused, on NVIDIA H200" in words
    shared = dict(zip(table.columns, table.rows[1], strict=True))
    assert shared["time saved"].value == pytest.approx((0.25 + 11 / 42) / 2)
    assert shared["tokens a second"].value == pytest.approx(64 * 32 / 0.0305)


@pytest.mark.parametrize("forward", [True, False])
def test_forward_passes_have_a_column_where_they_were_measured(folder, forward):
    add_record(folder, make_bench_record(STEPS, forward=forward))
    table, _ = speed_of(folder)
    assert ("forward pass, ms" in table.columns, "forward pass" in table.caption) == (forward, forward)
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_the_bench_of_the_study_comes_first_and_old_ones_are_read(folder):
    add_record(folder, make_bench_record(STEPS))
    write_json(folder / "bench.json", make_bench(["standard", "shared"]))
    assert read_study(folder).bench.size == "tiny", "a file that no stage of this study has written"
    info = make_info(["standard", "shared"], 1)
    write_json(folder / "study.json", info)
    assert read_study(folder).bench.size is None
    _, words = speed_of(folder)
    assert "fp32, not compiled, attention by sdpa" in words
    assert "sharedqkv bench" not in words


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda record: record["config"].update(positions="rotary"), "nobody of the study is among standard:sdpa, "),
        (lambda record: record.update(passes={"forward": {}}), "no training step was measured: .* --passes train"),
        (lambda record: record["entrants"]["shared:fused"].update(parameters=10**7), "shared:fused has 10,000,000 "),
        (lambda record: record["passes"]["train"]["seconds_of_rounds"]["shared:fused"].clear(), "has no times"),
        (lambda record: record.pop("device"), "KeyError"),
    ],
)
def test_a_record_that_does_not_fit_is_told(folder, change, problem):
    record = make_bench_record({name: list(steps) for name, steps in STEPS.items()})
    change(record)
    add_record(folder, record)
    study = read_study(folder)
    assert study.bench is None
    with pytest.raises(ValueError, match=problem):
        raise ValueError(study.problems["bench/record.json"])


def test_a_bench_without_the_baseline_of_the_study_makes_a_report(folder):
    """Of two kinds of positions one was timed, and `shared` is only among those."""
    info = make_info(["standard", "standard, absolute", "shared"], 0)
    info["entrants"][0]["position_embedding_type"] = "rotary"
    info["entrants"][1]["variant"] = "standard"
    write_json(folder / "study.json", {**info, "cells": {}})
    add_record(folder, make_bench_record(STEPS))
    text = (build_report(folder).parent / "report.md").read_text(encoding="utf-8")
    assert "2 timed repeats of each model" in text


def test_a_real_record_is_read(folder):
    settings = Settings(size="tiny", length=16, rows=2, positions="rotary", rounds=2, steps=1, warmup=0)
    entrants = choose_entrants(["standard", "shared:sdpa,bias=true"], ["sdpa"], [], settings)
    record = record_of(run_bench(entrants, ["train"], settings, lambda text: None), entrants, settings)
    info = make_info(["standard", "shared"], 0)
    info["entrants"][1]["attention_options"] = {"bias": True}
    for entrant in info["entrants"]:
        entrant["position_embedding_type"] = "rotary"
    write_json(folder / "study.json", {**info, "cells": {}})
    add_record(folder, record)
    bench = read_study(folder).bench
    assert {name: len(timing.train_step_s) for name, timing in bench.entrants.items()} == {"standard": 2, "shared": 2}
    assert (bench.size, bench.rows, bench.compile, bench.attn_implementation) == ("tiny", 2, False, "sdpa")
