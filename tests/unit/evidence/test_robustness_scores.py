"""Scores are read from predictions by severity and model; what is not there is told."""

import json

import pytest

from sharedqkv.evidence.finetuned import group_runs
from sharedqkv.evidence.robustness_scores import ScoreReader
from sharedqkv.robustness.conditions import Condition
from sharedqkv.robustness.tried import cell_file, pack_trials
from sharedqkv.tasks.cells import Cell, write_json, write_predictions

SWAP = Condition("swap", 0, (1, 5))


def make_run(folder, variant, right, condition=SWAP, seeds=2):
    """Of 10 answers under a severity so many are right."""
    folder.mkdir()
    model = {"variant": variant, "pretraining_seed": 0, "sha256": str(folder)}
    (folder / "run.json").write_text(json.dumps({"kind": "finetune", "model": model}))
    for seed in range(seeds):
        write_json(Cell(folder, "sst2", seed).record_file, {})
        keep(folder, right, condition, seed)
    return str(folder)


def keep(folder, right, condition, seed):
    records = [
        {"id": number, "label": 1, "prediction": int(number < right[severity]), "scores": [], "severity": severity}
        for severity in condition.severities
        for number in range(10)
    ]
    file = cell_file(folder, "sst2", condition, seed)
    write_predictions(file, records)
    write_json(file.with_suffix(".json"), {"severities": list(condition.severities), "chance": 0.5})


@pytest.fixture
def reader(tmp_path):
    runs = [
        make_run(tmp_path / "a", "standard", {1: 9, 5: 6}),
        make_run(tmp_path / "b", "shared", {1: 8, 5: 7}),
    ]
    return ScoreReader(group_runs(runs), "sst2", untried={})


@pytest.mark.parametrize("packed", [False, True])
def test_scores_by_severity_and_model(reader, tmp_path, packed):
    for run in (tmp_path / "a", tmp_path / "b"):
        if packed:
            pack_trials(run)
    scores = reader.scores([SWAP])
    found = {
        (severity, model): scores[severity][model].scores_R.tolist()
        for severity in (1, 5)
        for model in scores[severity]
    }
    assert found == {
        (1, "standard"): [0.9, 0.9],
        (1, "shared"): [0.8, 0.8],
        (5, "standard"): [0.6, 0.6],
        (5, "shared"): [0.7, 0.7],
    }


def test_seeds_of_the_noise_are_averaged(reader, tmp_path):
    again = Condition("swap", 1, (1, 5))
    for run in ("a", "b"):
        for seed in (0, 1):
            keep(tmp_path / run, {1: 7, 5: 6}, again, seed)
    assert reader.scores([SWAP, again])[1]["standard"].scores_R.tolist() == pytest.approx([0.8, 0.8])


def test_nothing_is_lacking(reader):
    assert reader.lacks([SWAP]) is None
    assert reader.any_record(SWAP)["chance"] == 0.5


def test_a_model_that_was_not_tried_is_told(reader, tmp_path):
    cell_file(tmp_path / "b", "sst2", SWAP, seed=1).with_suffix(".json").unlink()
    assert reader.lacks([SWAP]) == "not every model has been tried"


def test_other_severities_are_told(reader):
    assert reader.lacks([Condition("swap", 0, (1, 2))]) == "tried with other severities: run it again"


def test_what_is_untried_now_is_not_taken_from_before(reader):
    reader.untried = {"sst2, swap, noise seed 0": "no such file"}
    assert reader.lacks([SWAP]) == "no such file"
