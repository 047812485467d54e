"""Comparing run folders: which runs belong together, what is paired, what is left out."""

import json

import numpy as np
import pytest

from sharedqkv.evidence.finetuned import compare_models, read_models
from sharedqkv.tasks.cells import Cell, predictions_file, write_json, write_predictions
from sharedqkv.tasks.metrics import GLUE_METRICS
from sharedqkv.tasks.task import Split

EXAMPLES = 60


def make_run(folder, variant="standard", pretraining_seed=0, seeds=range(6), tasks=("cola",), right=0.8, sha256=None):
    """Predictions that are right with a given probability."""
    model = {"variant": variant, "pretraining_seed": pretraining_seed, "sha256": sha256 or str(folder)}
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"kind": "finetune", "model": model}))
    for name in tasks:
        config, split = (name, "validation")
        if name.startswith("mnli"):
            config, split = "mnli", name.replace("mnli", "validation")
        for seed in seeds:
            rng = np.random.default_rng(list(f"{folder.name} {name} {seed}".encode()))
            write_predictions(predictions_file(folder, Split(config, split), seed), records(name, right, rng))
            cell = Cell(folder, config, seed)
            kept = cell.record() or {"splits": {}}
            kept["splits"][f"{config}/{split}"] = {"scored_as": name}
            write_json(cell.record_file, kept)
    return str(folder)


def records(name, right, rng):
    for index in range(EXAMPLES):
        is_right = rng.random() < right
        if name == "squad":
            scores = {"text": "anna", "span": 0.0, "null_odds": 0.0}
            yield {"id": f"q{index}", "label": ["anna"], "prediction": "anna" if is_right else "bob", "scores": scores}
        else:
            label = index % 2
            prediction = label if is_right else 1 - label
            yield {
                "id": index,
                "label": label,
                "prediction": prediction + (0.25 if name == "stsb" else 0),
                "scores": [],
            }


def test_models_are_named_by_their_variants_where_these_differ(tmp_path):
    a, b = make_run(tmp_path / "a", "shared"), make_run(tmp_path / "b")
    assert [model.name for model in read_models([a], [b])] == ["shared", "standard"]
    assert [model.name for model in read_models([b], [make_run(tmp_path / "c")])] == [b, str(tmp_path / "c")]


def test_a_clear_difference_is_called_for_the_right_side(tmp_path):
    a = make_run(tmp_path / "a", "shared", right=0.6, tasks=("cola", "squad"))
    b = make_run(tmp_path / "b", right=0.95, tasks=("cola", "squad"))
    report = compare_models(*read_models([a], [b]), paired=False)
    assert [(task.task, task.called, task.difference < 0) for task in report.tasks] == [
        ("cola", True, True),
        ("squad", True, True),
    ]
    assert all(task.family == 2 and task.unit == "fine-tuning seed" for task in report.tasks)
    assert set(report.mcnemar) == {"cola"}
    assert report.average is None


def test_a_run_against_itself_differs_in_nothing(tmp_path):
    runs = [make_run(tmp_path / "a")]
    [comparison] = compare_models(*read_models(runs, runs)).tasks
    assert (comparison.difference, comparison.p, comparison.paired) == (0, 1, True)


@pytest.mark.parametrize("known", [True, False])
def test_pretraining_seeds_are_the_unit_and_paired_only_where_they_are_known(known, tmp_path):
    runs = {
        side: [make_run(tmp_path / f"{side}{seed}", side, seed if known else None, seeds=(0, 1)) for seed in range(3)]
        for side in ("shared", "standard")
    }
    [comparison] = compare_models(*read_models(runs["shared"], runs["standard"])).tasks
    assert (comparison.unit, comparison.units_a, comparison.runs_a) == ("pre-training seed", 3, 6)
    assert comparison.paired == known


def test_the_same_checkpoint_twice_is_no_second_pretraining_seed(tmp_path):
    runs = [make_run(tmp_path / name, sha256="same") for name in ("a", "b")]
    with pytest.raises(ValueError, match="two of these runs fine-tune the same checkpoint"):
        read_models(runs, [make_run(tmp_path / "c")])


def test_tasks_that_only_one_has_are_left_out_and_told(tmp_path):
    a, b = make_run(tmp_path / "a", tasks=("cola", "rte")), make_run(tmp_path / "b", tasks=("rte", "sst2"))
    report = compare_models(*read_models([a], [b]))
    assert [task.task for task in report.tasks] == ["rte"]
    assert report.only_one_has == ["cola", "sst2"]


def test_nothing_in_common_is_an_error(tmp_path):
    a, b = make_run(tmp_path / "a", tasks=("cola",)), make_run(tmp_path / "b", tasks=("rte",))
    with pytest.raises(ValueError, match="no task in common"):
        compare_models(*read_models([a], [b]))


@pytest.mark.parametrize("without", [None, "wnli", "cola"])
def test_the_average_needs_all_tasks_but_wnli(without, tmp_path):
    tasks = [name for name in GLUE_METRICS if name != without]
    a, b = (make_run(tmp_path / name, tasks=tasks, seeds=(0, 1)) for name in "ab")
    average = compare_models(*read_models([a], [b])).average
    names = {None: "GLUE average", "wnli": "GLUE average without WNLI", "cola": None}
    assert (average and average.task) == names[without]


def test_other_runs_are_refused(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"kind": "pretrain"}))
    with pytest.raises(ValueError, match="kind pretrain: give runs of `sharedqkv finetune`"):
        read_models([str(tmp_path)], [str(tmp_path)])
    with pytest.raises(FileNotFoundError, match="is no run folder"):
        read_models([str(tmp_path / "none")], [str(tmp_path)])
