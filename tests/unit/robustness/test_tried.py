"""The models of runs, where their predictions lie, and when a cell counts as finished."""

import json
import shutil

import pytest

from sharedqkv.robustness.conditions import CLEAN, Condition, Examples
from sharedqkv.robustness.tried import (
    TriedModel,
    cell_file,
    models_of,
    pack_trials,
    trial_predictions,
    trial_record,
)
from sharedqkv.tasks.cells import Cell, settings_sha256, write_json, write_predictions

LIMITS = {"max_length": 128, "stride": 128, "max_question_length": 64}
KEYBOARD = Condition("keyboard", 3, (1, 5))
LOADED = Examples(["a text", "another"], {})


def make_cell(run, task="sst2", seed=0, vocabulary="[PAD]", trained="as planned", **limits):
    """A fine-tuned model as far as it matters here: its record, and its tokenizer."""
    write_json(run / "run.json", {"kind": "finetune"})
    cell = Cell(run, task, seed)
    write_json(cell.record_file, {"settings_sha256": trained, "recipe": {**LIMITS, **limits}})
    cell.model.mkdir(parents=True)
    (cell.model / "vocab.txt").write_text(vocabulary)
    return cell


def keep(model, condition=KEYBOARD, loaded=LOADED):
    """What a finished cell leaves."""
    settings = model.settings(condition, loaded)
    sha256 = write_predictions(model.file(condition), [{"id": 0, "severity": 1}])
    record = {"settings_sha256": settings_sha256(settings), "predictions_sha256": sha256}
    write_json(model.file(condition).with_suffix(".json"), record)


def test_predictions_lie_in_the_run(tmp_path):
    file = tmp_path / "robustness" / "sst2" / "keyboard" / "3" / "7.jsonl"
    assert cell_file(tmp_path, "sst2", KEYBOARD, 7) == file
    assert TriedModel(make_cell(tmp_path, seed=7)).file(KEYBOARD) == file


def test_every_condition_has_a_file_of_its_own(tmp_path):
    conditions = [Condition(CLEAN), Condition("imdb"), KEYBOARD, Condition("keyboard", 4, (1, 5))]
    assert len({cell_file(tmp_path, "sst2", condition, seed) for condition in conditions for seed in (0, 1)}) == 8


def test_a_cell_is_finished_once_its_record_is_there(tmp_path):
    model = TriedModel(make_cell(tmp_path))
    assert not model.finished(KEYBOARD, LOADED)
    keep(model)
    assert model.finished(KEYBOARD, LOADED)
    assert not model.finished(Condition("keyboard", 4, (1, 5)), LOADED)


@pytest.mark.parametrize(
    ("condition", "loaded"),
    [(Condition("keyboard", 3, (1, 4)), LOADED), (KEYBOARD, Examples(["a text", "a changed one"], {}))],
    ids=["severities", "examples"],
)
def test_what_was_tried_otherwise_is_not_finished(tmp_path, condition, loaded):
    model = TriedModel(make_cell(tmp_path))
    keep(model, condition, loaded)
    assert not model.finished(KEYBOARD, LOADED)


def test_a_model_trained_again_is_not_finished(tmp_path):
    keep(TriedModel(make_cell(tmp_path)))
    shutil.rmtree(tmp_path / "models")
    assert not TriedModel(make_cell(tmp_path, trained="longer")).finished(KEYBOARD, LOADED)


@pytest.mark.parametrize("damage", ["predictions cut", "predictions gone", "record cut"])
def test_a_damaged_cell_is_not_finished(tmp_path, damage):
    model = TriedModel(make_cell(tmp_path))
    keep(model)
    file = model.file(KEYBOARD)
    if damage == "predictions gone":
        file.unlink()
    else:
        damaged = file if damage == "predictions cut" else file.with_suffix(".json")
        damaged.write_bytes(damaged.read_bytes()[:-9])
    assert not model.finished(KEYBOARD, LOADED)


def test_models_take_the_same_inputs_where_vocabulary_and_limits_agree(tmp_path):
    first = TriedModel(make_cell(tmp_path / "a"))
    assert TriedModel(make_cell(tmp_path / "b", seed=1, trained="longer")).inputs_like == first.inputs_like
    assert TriedModel(make_cell(tmp_path / "c", vocabulary="[UNK]")).inputs_like != first.inputs_like
    for number, name in enumerate(LIMITS):
        other = TriedModel(make_cell(tmp_path / str(number), **{name: 32}))
        assert other.inputs_like != first.inputs_like, name


def test_models_of_all_runs_by_task(tmp_path):
    for run, task, seed in (("a", "sst2", 0), ("a", "sst2", 1), ("a", "rte", 0), ("b", "sst2", 0)):
        make_cell(tmp_path / run, task, seed)
    runs = [str(tmp_path / "a"), str(tmp_path / "b")]
    found = models_of(runs, ["sst2"])
    assert list(found) == ["sst2"]
    assert [(model.cell.run.name, model.cell.seed) for model in found["sst2"]] == [("a", 0), ("a", 1), ("b", 0)]
    assert set(models_of(runs, [])) == {"sst2", "rte"}


def test_runs_without_what_is_needed_are_told(tmp_path):
    make_cell(tmp_path / "a")
    with pytest.raises(ValueError, match="a has no finished cell of rte"):
        models_of([str(tmp_path / "a")], ["rte"])
    shutil.rmtree(tmp_path / "a" / "models")
    with pytest.raises(ValueError, match=r"a kept no model of sst2, seed 0: run its .* again with --keep-models"):
        models_of([str(tmp_path / "a")], [])
    (tmp_path / "a" / "run.json").write_text(json.dumps({"kind": "pretrain"}))
    with pytest.raises(ValueError, match="a is a run of kind pretrain"):
        models_of([str(tmp_path / "a")], [])


def test_packed_trials_are_read_as_before_but_for_scores(tmp_path):
    for seed in (0, 7):
        file = cell_file(tmp_path, "sst2", KEYBOARD, seed)
        write_predictions(file, [{"id": seed, "prediction": 0.123456, "scores": [0.5], "severity": 1}])
        write_json(file.with_suffix(".json"), {"severities": [1, 5], "chance": seed})
    pack_trials(tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["3.json.xz"]
    assert trial_record(tmp_path, "sst2", KEYBOARD, 7) == {"severities": [1, 5], "chance": 7}
    assert trial_predictions(tmp_path, "sst2", KEYBOARD, 7) == [{"id": 7, "prediction": 0.1235, "severity": 1}]
    assert trial_record(tmp_path, "sst2", KEYBOARD, 8) is None
    assert trial_record(tmp_path, "sst2", Condition("keyboard", 4, (1, 5)), 7) is None
    pack_trials(tmp_path)  # nothing is left to do
    assert trial_record(tmp_path, "sst2", KEYBOARD, 0) == {"severities": [1, 5], "chance": 0}


def test_packing_adds_to_what_is_packed(tmp_path):
    for seed in (0, 1):  # as if the first packing had been cut short before it removed the last files
        file = cell_file(tmp_path, "sst2", KEYBOARD, seed)
        write_predictions(file, [{"id": seed, "prediction": 1}])
        write_json(file.with_suffix(".json"), {"chance": seed})
        pack_trials(tmp_path)
    assert [trial_record(tmp_path, "sst2", KEYBOARD, seed) for seed in (0, 1)] == [{"chance": 0}, {"chance": 1}]
    assert trial_predictions(tmp_path, "sst2", KEYBOARD, 0) == [{"id": 0, "prediction": 1}]


def test_an_unfinished_trial_is_not_packed(tmp_path):
    file = cell_file(tmp_path, "sst2", KEYBOARD, 0)
    write_predictions(file, [{"id": 0, "prediction": 1}])
    pack_trials(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]


def test_damaged_packed_trials_are_told(tmp_path):
    packed = cell_file(tmp_path, "sst2", KEYBOARD, 0).parent.with_name("3.json.xz")
    packed.parent.mkdir(parents=True)
    packed.write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"3\.json\.xz is damaged"):
        trial_record(tmp_path, "sst2", KEYBOARD, 0)
