"""The table of the search for learning rates, in the part on pre-training."""

import csv

import pytest
from report_helpers import make_info, make_pretraining

from sharedqkv.evidence.report import build_report
from sharedqkv.evidence.report.collect import read_study
from sharedqkv.evidence.report.sections.learning_rates import learning_rates
from sharedqkv.tasks.cells import write_json
from sharedqkv.training.run_folder import RunFolder

VARIANTS = ["standard", "shared", "narrow", "tied", "symmetric"]
SEARCH = {"learning_rates": [0.0005, 0.001, 0.002], "max_tokens": 20_000_000, "position": "absolute"}


def add_run(folder, variant, rate, losses, state="done", error=None):
    run = RunFolder(folder / "search" / variant / f"{rate:g}")
    run.create({})
    for step, loss in enumerate(losses, 1):
        run.append_metrics({"step": step, "tokens": step, "loss": loss})
    run.set_state(state, error=error)


@pytest.fixture
def folder(tmp_path):
    """Searched: standard (the middle rate), shared (the highest, after a breakdown), narrow in part, tied in vain."""
    info = make_info(VARIANTS, 1)
    rotary = {**info["entrants"][1], "name": "shared, rotary", "slug": "r", "position_embedding_type": "rotary"}
    write_json(tmp_path / "study.json", {**info, "entrants": [*info["entrants"], rotary], "search": SEARCH})
    for rate, loss in ((0.0005, 3.0), (0.001, 2.5), (0.002, 2.75)):
        add_run(tmp_path, "standard", rate, [1.0] * 8 + [loss - 0.25, loss + 0.25])
    broken = {"state": "failed", "error": "NonFiniteLossError: the loss is nan"}
    add_run(tmp_path, "shared", 0.0005, [3.0], **broken)
    add_run(tmp_path, "shared", 0.001, [3.0])
    add_run(tmp_path, "shared", 0.002, [2.0])
    add_run(tmp_path, "narrow", 0.0005, [3.0])
    add_run(tmp_path, "narrow", 0.001, [3.0], state="failed", error="OSError: disk full")
    for rate in SEARCH["learning_rates"]:
        add_run(tmp_path, "tied", rate, [3.0], **broken)
    return tmp_path


def test_what_was_tried_and_taken(folder):
    table, note = learning_rates(read_study(folder))
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["standard", "3.000", "2.500", "2.750", "0.001", "–"],
        ["shared", "broke down", "3.000", "2.000", "0.002", "at the edge"],
        ["narrow", "3.000", "–", "–", "–", "not complete"],
        ["tied", "broke down", "broke down", "broke down", "–", "all broke down"],
        ["symmetric", "–", "–", "–", "–", "not complete"],
    ]
    assert "of 20.0 M tokens" in table.caption.replace("\N{NO-BREAK SPACE}", " ")
    assert "with absolute positions" in note.text, "rotary ones take the same"


def test_the_lowest_rate_is_an_edge_too(folder):
    add_run(folder, "symmetric", 0.0005, [1.0])
    add_run(folder, "symmetric", 0.001, [2.0])
    add_run(folder, "symmetric", 0.002, [2.0])
    table, _ = learning_rates(read_study(folder))
    assert [cell.text for cell in table.rows[-1]][-2:] == ["0.0005", "at the edge"]


def test_it_is_in_the_report_even_before_any_pretraining(folder):
    for begun in (False, True):
        if begun:
            make_pretraining(folder / "pretrain" / "standard" / "0", "standard", 0, 2.0)
        report = build_report(folder).parent
        text = (report / "report.md").read_text(encoding="utf-8")
        assert "| standard | 3.000 | 2.500 | 2.750 | 0.001 |" in text.split("\n## Pre-training")[1].split("\n## ")[0]
    with open(report / "tables" / "learning_rates.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["learning rate"], row["loss"], row["taken"]) for row in rows if row["model"] == "standard"] == [
        ("0.0005", "3.0", "False"),
        ("0.001", "2.5", "True"),
        ("0.002", "2.75", "False"),
    ]


def test_a_damaged_search_run_is_told_and_not_counted(folder):
    (folder / "search" / "standard" / "0.001" / "metrics.jsonl").unlink()
    study = read_study(folder)
    assert "logged no loss" in study.problems["search/standard/0.001"]
    table, _ = learning_rates(study)
    assert table.rows[0][-1].text == "not complete"


def test_a_study_without_a_search_has_no_table(folder):
    write_json(folder / "study.json", make_info(VARIANTS, 1))
    assert learning_rates(read_study(folder)) == []


def add_whole_run(path, rate, loss, held_out=2.0):
    run = RunFolder(path)
    run.create({"recipe": {"learning_rate": rate}})
    for step, seen in enumerate([9.0] * 8 + [loss - 0.25, loss + 0.25], 1):
        run.append_metrics({"step": step, "tokens": step, "loss": seen})
    run.set_state("done", eval_loss=held_out)


@pytest.fixture
def checked(folder):
    """`standard` was also run whole with the rates not taken, one of which is lower; `shared` with one that broke."""
    add_whole_run(folder / "pretrain" / "standard" / "0", 0.001, 2.5)
    add_whole_run(folder / "checks" / "standard" / "0-rate-0.002", 0.002, 2.25, held_out=2.125)
    add_whole_run(folder / "checks" / "standard" / "0-rate-0.0005", 0.0005, 2.75)
    add_whole_run(folder / "pretrain" / "shared" / "0", 0.002, 3.0)
    add_whole_run(folder / "checks" / "shared" / "0-rate-5e-05", 5e-05, 3.0)
    broken = RunFolder(folder / "checks" / "shared" / "0-rate-5e-05")
    broken.write_info({"recipe": {"learning_rate": 5e-05}, "state": "failed", "error": "NonFiniteLossError: nan"})
    add_whole_run(folder / "pretrain" / "narrow" / "0", 0.001, 2.5)
    return folder


def test_whole_runs_with_other_rates_stand_beside_the_one_taken(checked):
    _, _, table, *_ = learning_rates(read_study(checked))
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["standard", "0", "0.0005", "2.750", "2.000", "–"],
        ["standard", "0", "0.001", "2.500", "2.000", "taken"],
        ["standard", "0", "0.002", "2.250", "2.125", "–"],
        ["shared", "0", "5e-05", "broke down", "–", "–"],
        ["shared", "0", "0.002", "3.000", "2.000", "taken"],
    ]


def test_a_rate_that_does_better_than_the_one_taken_is_told(checked):
    _, _, _, *sentences, note = learning_rates(read_study(checked))
    assert [sentence.text for sentence in sentences] == [
        "`standard`: training loss is lower with 0.002 than with the rate taken, 0.001, in seed 0 (2.250 against "
        "2.500)."
    ]
    assert note.kind == "note"


def test_a_rate_that_was_run_with_every_seed_is_compared(folder):
    write_json(folder / "study.json", {**make_info(VARIANTS, 5), "search": SEARCH})
    for seed in range(5):
        loss = 2.0 + seed / 100
        make_pretraining(folder / "pretrain" / "standard" / f"{seed}", "standard", seed, loss, learning_rate=0.001)
        make_pretraining(folder / "pretrain" / "shared" / f"{seed}", "shared", seed, loss + 0.5, learning_rate=0.002)
        add_whole_run(folder / "checks" / "shared" / f"{seed}-rate-0.001", 0.001, 1.0, held_out=loss + 0.25)
    make_pretraining(folder / "pretrain" / "narrow" / "0", "narrow", 0, 2.0, learning_rate=0.001)  # too few for a test
    for seed in (0, 1):  # not with every seed
        add_whole_run(folder / "checks" / "standard" / f"{seed}-rate-0.002", 0.002, 9.0)
    _, _, _, lower, compared, _ = learning_rates(read_study(folder))
    assert (
        "`shared`: training loss is lower with 0.001 than with the rate taken, 0.002, in seeds 0 (1.000 " in lower.text
    )
    assert compared.text.replace("\N{NO-BREAK SPACE}", " ") == (
        "`shared` with 0.001 ends at 2.270 ± 0.016 nats on held-out text, 5 seeds; +0.250 against `standard` "
        "(95 % interval 0.227 to 0.273, p = 0.0079, not corrected)."
    )


def test_without_such_runs_there_is_no_second_table(folder):
    add_whole_run(folder / "pretrain" / "standard" / "0", 0.001, 2.5)
    assert len(learning_rates(read_study(folder))) == 2


def test_a_damaged_check_is_told_and_left_out(checked):
    (checked / "checks" / "standard" / "0-rate-0.002" / "run.json").write_text("{")
    study = read_study(checked)
    assert "is damaged" in study.problems["checks/standard/0-rate-0.002"]
    assert [check.learning_rate for check in study.rate_checks if check.model == "standard"] == [0.0005, 0.001]
