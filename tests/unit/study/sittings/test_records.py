"""Choice of the learning rates, what counts as done, what is kept and refused."""

import dataclasses
import json
from pathlib import Path

import pytest

from sharedqkv.study.sittings import Cell, Records
from sharedqkv.study.sittings.whole_cell import FINETUNED
from sharedqkv.tasks.cells import Cell as TaskCell
from sharedqkv.tasks.cells import read_predictions, write_json, write_predictions

FIRST, SECOND = Cell("shared", "rotary", 0), Cell("shared", "rotary", 1)


def test_the_rate_is_chosen_by_the_end_of_the_training_loss(records, add_search_run):
    add_search_run(records, "shared", 1e-3, [1.0] * 8 + [3.0, 3.0])
    assert records.chosen_rate("shared") is None
    add_search_run(records, "shared", 2e-3, [9.0] * 8 + [2.9, 2.9])
    assert records.chosen_rate("shared") == 2e-3
    assert records.recipe(Cell("shared", "absolute", 1), Path("c"), Path("r")).learning_rate == 2e-3
    assert records.recipe(Cell("standard", "rotary"), Path("c"), Path("r")) is None


def test_a_rate_at_which_training_broke_down_is_out(records, add_search_run):
    add_search_run(records, "shared", 1e-3, [3.0])
    add_search_run(records, "shared", 2e-3, [2.0], "failed", "NonFiniteLossError: the loss is nan")
    assert records.chosen_rate("shared") == 1e-3
    add_search_run(records, "standard", 1e-3, [2.0], "failed", "NonFiniteLossError: the loss is nan")
    add_search_run(records, "standard", 2e-3, [2.0], "failed", "NonFiniteLossError: the loss is nan")
    with pytest.raises(ValueError, match="standard: training broke down with every rate: add lower ones"):
        records.chosen_rate("standard")


def test_a_search_run_without_a_logged_loss_is_told(records, add_search_run):
    add_search_run(records, "shared", 1e-3, [])
    with pytest.raises(ValueError, match=r"search/shared-rotary/0.001 logged no loss: .*fewer logging_steps"):
        records.chosen_rate("shared")


def test_a_cell_that_failed_for_another_reason_is_run_again(records, add_search_run):
    add_search_run(records, "shared", 1e-3, [3.0], "failed", "OSError: disk full")
    assert not records.is_settled(Cell("shared", "rotary", tried_rate=1e-3))


def test_the_rate_that_was_taken_needs_no_check(records, add_search_run):
    checks = [Cell("shared", "rotary", checked_rate=rate) for rate in (1e-3, 2e-3)]
    add_search_run(records, "shared", 1e-3, [3.0])
    assert [records.recipe(cell, Path("c"), Path("r")) for cell in checks] == [None, None]
    assert [records.is_settled(cell) for cell in checks] == [False, False]
    add_search_run(records, "shared", 2e-3, [2.0])
    assert [records.state(cell) for cell in checks] == ["pending", "done"]
    assert [records.is_settled(cell) for cell in checks] == [False, True]
    assert records.recipe(checks[0], Path("c"), Path("r")).learning_rate == 1e-3


def test_another_budget_is_checked_with_the_rate_taken(records, add_search_run):
    for rate, loss in ((1e-3, 3.0), (2e-3, 2.0)):
        add_search_run(records, "shared", rate, [loss])
    recipe = records.recipe(Cell("shared", "rotary", checked_tokens=3000), Path("c"), Path("r"))
    assert (recipe.learning_rate, recipe.max_tokens) == (2e-3, 3000)


def test_a_check_takes_what_a_whole_run_takes(records):
    records.folder.mkdir()
    records.note(cell="search/shared-rotary/0.001", seconds=9.0, side_by_side=1, exit_code=0)
    check = Cell("shared", "rotary", checked_rate=1e-3)
    assert records.device_s(check) is None
    records.note(cell="pretrain/shared-rotary/0", seconds=5.0, side_by_side=1, exit_code=0)
    assert records.device_s(check) == 5.0


def test_what_a_cell_takes_is_told_by_the_last_round(records):
    """Of three side by side, two are its model's: the slow one of its model before them does not count."""
    records.folder.mkdir()
    for model, device_s in (("shared", 180.0), ("standard", 170.0), ("shared", 90.0), ("shared", 80.0)):
        told = {"cell": f"pretrain/{model}-rotary/0", "seconds": 300.0, "device_s": device_s}
        records.note(**told, side_by_side=3, exit_code=0)
    records.note(cell="pretrain/shared-rotary/0", seconds=7.0, device_s=1.0, side_by_side=3, exit_code=1)
    assert records.device_s(Cell("shared", "rotary")) == 90.0
    assert records.device_s(Cell("standard", "rotary")) == 170.0


def test_what_a_cell_takes_is_told_by_its_model_or_by_all(records):
    """These are older notes, without what was taken of the device."""
    records.folder.mkdir()
    for model, seconds in (("shared-rotary", 200.0), ("standard-rotary", 360.0)):
        records.note(cell=f"pretrain/{model}/0", seconds=seconds, side_by_side=2, exit_code=0)
    assert records.device_s(Cell("shared", "rotary")) == 100.0
    assert records.device_s(Cell("shared", "absolute")) == 180.0


def test_records_of_other_settings_are_an_error(records, plan, add_search_run):
    add_search_run(records, "shared", 1e-3, [3.0])
    cell = Cell("shared", "rotary", tried_rate=1e-3)
    assert records.is_settled(cell)
    plan.study.pretrain["rows_per_step"] = 64
    with pytest.raises(ValueError, match=r"other settings: rows_per_step was 32, is 64"):
        records.is_settled(cell)


@pytest.fixture
def with_tasks(plan_with_tasks, tmp_path, add_search_run):
    """Records in which the rates of shared's pre-training are known."""
    records = Records(plan_with_tasks, tmp_path / "records")
    for rate in (1e-3, 2e-3):
        add_search_run(records, "shared", rate, [3.0])
    return records


def made_cell(records, folder, cell, learning_rate=1e-4):
    """What a whole cell leaves in the work folder."""
    recipe = json.loads(json.dumps(records.recipe(cell, Path("c"), Path("r")).to_dict()))
    write_json(folder / "run.json", {"state": "done", "recipe": recipe})
    run = folder / FINETUNED
    write_json(run / "run.json", {"state": "done"})
    for task, asked in records.plan.tasks.items():
        chosen = {**asked.to_dict(), "learning_rate": learning_rate, "search": {}}
        write_json(TaskCell(run, task, 3).record_file, {"recipe": chosen})
    answer = {"id": 1, "label": 0, "prediction": 1, "severity": 1}
    write_predictions(run / "robustness" / "sst2" / "keyboard" / "0" / "3.jsonl", [answer])
    (run / "models").mkdir()
    (run / "models" / "weights").write_text("large")
    return folder


def test_a_cell_is_done_when_its_scores_are_there(with_tasks, tmp_path):
    made = made_cell(with_tasks, tmp_path / "made", FIRST)
    with_tasks.keep(FIRST, made)
    assert with_tasks.state(FIRST) == "pending"
    assert not with_tasks.is_settled(FIRST)
    with_tasks.keep_tasks(FIRST, made)
    assert with_tasks.is_settled(FIRST)


def test_predictions_are_kept_and_weights_are_not(with_tasks, tmp_path):
    with_tasks.keep_tasks(FIRST, made_cell(with_tasks, tmp_path / "made", FIRST))
    kept = with_tasks.tasks_run(FIRST).path
    assert kept == tmp_path / "records" / "finetune" / "shared-rotary" / "0"
    (record,) = read_predictions(kept / "robustness" / "sst2" / "keyboard" / "0" / "3.jsonl")
    assert record == {"id": 1, "label": 0, "prediction": 1, "severity": 1}
    assert not (kept / "models").exists()


def test_an_entrants_first_cell_finds_the_rates_of_all(with_tasks, tmp_path):
    assert with_tasks.task_recipes(FIRST)["acceptability"].search
    assert with_tasks.task_recipes(SECOND) is None
    made = made_cell(with_tasks, tmp_path / "made", FIRST, learning_rate=7e-5)
    with_tasks.keep(FIRST, made)
    with_tasks.keep_tasks(FIRST, made)
    found = with_tasks.task_recipes(SECOND)
    assert {task: (recipe.learning_rate, recipe.search) for task, recipe in found.items()} == {
        "acceptability": (7e-5, {}),
        "sst2": (7e-5, {}),
    }


def test_how_many_seeds_are_trained_together_may_change_between_cells(with_tasks, tmp_path):
    made = made_cell(with_tasks, tmp_path / "made", FIRST, learning_rate=7e-5)
    with_tasks.keep(FIRST, made)
    with_tasks.keep_tasks(FIRST, made)
    tasks = with_tasks.plan.tasks
    tasks |= {task: dataclasses.replace(recipe, seeds_at_once=2) for task, recipe in tasks.items()}
    assert with_tasks.is_settled(FIRST)
    assert {recipe.seeds_at_once for recipe in with_tasks.task_recipes(SECOND).values()} == {2}
    assert {recipe.learning_rate for recipe in with_tasks.task_recipes(SECOND).values()} == {7e-5}


def test_other_settings_of_the_tasks_are_an_error(with_tasks, tmp_path):
    made = made_cell(with_tasks, tmp_path / "made", FIRST)
    file = TaskCell(made / FINETUNED, "sst2", 3).record_file
    write_json(file, {"recipe": {**json.loads(file.read_text())["recipe"], "epochs": 9.0}})
    with_tasks.keep(FIRST, made)
    with_tasks.keep_tasks(FIRST, made)
    with pytest.raises(ValueError, match=r"finetune/shared-rotary/0 was run with other settings: epochs was 9.0, is 2"):
        with_tasks.is_settled(FIRST)


def test_the_study_names_all_stages(with_tasks):
    with_tasks.write_study()
    info = json.loads((with_tasks.folder / "study.json").read_text())
    assert (info["tasks"], info["noises"], info["severities"]) == (["acceptability", "sst2"], ["keyboard"], [1, 5])
    assert {name.split("/")[0] for name in info["cells"]} == {"pretrain", "finetune", "robust"}


def test_the_study_says_what_shared_the_device(records):
    records.folder.mkdir()
    records.write_study()
    assert study_of(records)["side_by_side"] == 1
    records.note(cell="search/shared-rotary/0.001", seconds=1.0, side_by_side=4, exit_code=0)
    records.note(cell="pretrain/shared-rotary/0", seconds=1.0, side_by_side=2, exit_code=0)
    records.note(cell="pretrain/shared-rotary/1", seconds=1.0, side_by_side=1, exit_code=0)
    records.write_study()
    assert study_of(records)["side_by_side"] == 2


def test_the_study_names_the_rates_that_are_searched(records):
    records.write_study()
    assert study_of(records)["search"] == {"learning_rates": [1e-3, 2e-3], "max_tokens": 1000, "position": "rotary"}


def test_one_rate_is_taken_and_no_search_to_tell_of(records):
    one = dataclasses.replace(records.plan.search, learning_rates=(2e-3,))
    records = Records(dataclasses.replace(records.plan, search=one), records.folder)
    assert records.chosen_rate("shared") == 2e-3
    assert records.is_taken(dataclasses.replace(FIRST, checked_rate=2e-3))
    assert not records.is_taken(FIRST)
    assert "search" not in records.facts()


def test_the_command_can_be_run_from_the_same_folder(records, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for script in ("scripts/sitting.py", str(tmp_path / "scripts" / "sitting.py")):
        monkeypatch.setattr("sys.argv", [script, "plan.yaml", "--seconds", "9"])
        records.write_study()
        assert study_of(records)["command"] == ["python", "scripts/sitting.py", "plan.yaml", "--seconds", "9"]


def study_of(records):
    return json.loads((records.folder / "study.json").read_text())


@pytest.fixture
def corpus(tmp_path):
    """A corpus' folder, in which a manifest can be put."""
    folder = tmp_path / "corpus"
    folder.mkdir(exist_ok=True)

    def put(place="here", words="ab", shard="cd"):
        told = {"length": 32, "tokenizer_hash": words, "settings": {"source": [place]}, "sources": [{"name": place}]}
        told["train"] = {"rows": 9, "shards": [{"file": {"name": "train-00000.npy", "sha256": shard}}]}
        (folder / "manifest.json").write_text(json.dumps(told))
        return folder

    return put


@pytest.mark.parametrize(("other", "differs"), [({"shard": "ef"}, "train"), ({"words": "ef"}, "tokenizer_hash")])
def test_other_text_is_refused(records, corpus, other, differs):
    records.keep_manifest(corpus())
    with pytest.raises(ValueError, match=rf"corpus is not the text that .*records was made .* differs in {differs}\. "):
        records.keep_manifest(corpus(**other))


def test_the_same_text_prepared_from_another_place_is_taken(records, corpus):
    """A manifest also tells where the text lay, which is another folder on another machine."""
    records.keep_manifest(corpus())
    before = (records.folder / "corpus_manifest.json").read_bytes()
    records.keep_manifest(corpus(place="elsewhere"))
    assert (records.folder / "corpus_manifest.json").read_bytes() == before  # records are not rewritten


@pytest.mark.parametrize("damaged", ["", '{"length": 3', "[1]", "null"])
def test_a_damaged_manifest_is_named(records, corpus, damaged):
    folder = corpus()
    (folder / "manifest.json").write_text(damaged)
    with pytest.raises(ValueError, match=r"corpus/manifest\.json is (damaged|no manifest).*sharedqkv prepare"):
        records.keep_manifest(folder)
    assert not records.folder.exists(), "nothing is kept of it"
    records.keep_manifest(corpus())
    (records.folder / "corpus_manifest.json").write_text(damaged)
    with pytest.raises(ValueError, match=r"records/corpus_manifest\.json is (damaged|no manifest).*: restore it"):
        records.keep_manifest(folder)
