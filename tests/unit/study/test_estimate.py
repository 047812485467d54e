"""Guesses of how long cells take: from records of their like only, and otherwise from what the budget says."""

import json

import pytest
from study_helpers import TINY, write_study

from sharedqkv.study import cells, estimate
from sharedqkv.study.cells import cells_of, write_record
from sharedqkv.study.plan import load_study
from sharedqkv.study.stages import run_cell

STEPS = "max_steps: 4"


def load(folder, old=STEPS, new=STEPS):
    study = load_study(write_study(folder, TINY.replace(old, new)))
    return study, {cell.name: cell for cell in cells_of(study)}


def seconds(study, cell, folder):
    return estimate.Estimator(study, folder).guess(cell).seconds


def test_records_of_the_same_settings_count_whatever_variant_and_seed(tmp_path):
    study, found = load(tmp_path)
    for name, took in (("pretrain/standard/0", 100.0), ("pretrain/shared/0", 200.0)):
        write_record(found[name], study, tmp_path, state="done", seconds=took, error=None)
    write_record(found["pretrain/standard/1"], study, tmp_path, state="failed", seconds=9000.0, error="x")
    assert seconds(study, found["pretrain/shared/1"], tmp_path) == 150
    assert seconds(study, found["finetune/shared/1"], tmp_path) < 100


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("num_hidden_layers: 1", "num_hidden_layers: 2"),
        ("length: 32", "length: 16"),
        (STEPS, "max_steps: 6"),
        ("sentence:", "threads: 2\nsentence:"),
    ],
)
def test_records_of_other_settings_do_not(old, new, tmp_path):
    study, found = load(tmp_path)
    write_record(found["pretrain/standard/0"], study, tmp_path, state="done", seconds=5000.0, error=None)
    other, found = load(tmp_path / "other", old, new)
    assert seconds(other, found["pretrain/standard/1"], tmp_path) < 100


def test_records_of_another_device_do_not(tmp_path, monkeypatch):
    study, found = load(tmp_path)
    write_record(found["pretrain/standard/0"], study, tmp_path, state="done", seconds=5000.0, error=None)
    monkeypatch.setattr(cells.platform, "machine", lambda: "abacus")
    assert seconds(study, found["pretrain/standard/1"], tmp_path) < 100


def test_records_from_before_likeness_was_kept_do_no_harm(tmp_path):
    study, found = load(tmp_path)
    file = cells.record_file(found["pretrain/standard/0"], tmp_path)
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"hash": "x", "state": "done", "seconds": 5000.0}))
    assert seconds(study, found["pretrain/standard/1"], tmp_path) < 100


def test_epochs_are_counted_when_the_corpus_is_there_and_told_unknown_before(tmp_path):
    study, found = load(tmp_path, STEPS, "max_epochs: 1000")
    guess = estimate.Estimator(study, tmp_path).guess(found["pretrain/shared/0"])
    assert guess.seconds is None
    assert "not prepared yet" in guess.why
    run_cell(found["prepare"], study, tmp_path)
    write_record(found["prepare"], study, tmp_path, state="done", seconds=1.0, error=None)
    once = seconds(study, found["pretrain/shared/0"], tmp_path)
    rows = json.loads((tmp_path / "corpus" / "manifest.json").read_text())["train"]["rows"]
    assert once == pytest.approx(1000 * rows / 4 * estimate._SHORTEST_STEP_S)  # such steps are shorter than any


def test_a_budget_in_minutes_is_the_answer(tmp_path):
    study, found = load(tmp_path, STEPS, "max_minutes: 3")
    assert seconds(study, found["pretrain/shared/0"], tmp_path) == 180
