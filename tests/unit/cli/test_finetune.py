"""The table of scores, and what is said beside it."""

import pytest

from sharedqkv.cli.finetune import print_outcome
from sharedqkv.tasks.finetune import Outcome
from sharedqkv.training.run_folder import RunFolder


def record(seed, accuracy, f1, truncated=0):
    metrics = {"accuracy": accuracy, "f1": f1, "score": (accuracy + f1) / 2}
    split = {"scored_as": "mrpc", "metrics": metrics, "truncated": truncated, "examples": 408}
    return {
        "task": "mrpc",
        "seed": seed,
        "train": {"truncated": 0, "examples": 3668},
        "splits": {"mrpc/validation": split},
    }


def printed(capsys, records, skipped=0, broken=None):
    print_outcome(Outcome(RunFolder("runs/x"), records, skipped, broken or {}))
    return capsys.readouterr()


def test_mean_and_spread_in_points(capsys):
    out = printed(capsys, [record(0, 0.80, 0.90), record(1, 0.82, 0.90)]).out
    assert "85.50 ± 0.71" in out
    assert "accuracy 81.00 ± 1.41" in " ".join(out.split())


def test_one_seed_has_no_spread(capsys):
    out = printed(capsys, [record(0, 0.80, 0.90)]).out
    assert "85.00" in out
    assert "± " not in out.replace("mean ± standard", "")


def test_cut_texts_are_told_once_a_task(capsys):
    out = printed(capsys, [record(0, 0.8, 0.9, truncated=3), record(1, 0.8, 0.9, truncated=3)]).out
    assert out.count("mrpc: texts cut to fit: 3 of 408 in mrpc/validation") == 1


@pytest.mark.parametrize("records", [[], [record(0, 0.8, 0.9)]])
def test_broken_cells_are_listed_by_their_error(records, capsys):
    broken = {"rte, seed 0": "no file", "rte, seed 1": "no file", "cola, seed 0": "NaN"}
    captured = printed(capsys, records, broken=broken)
    assert "broken: rte, seed 0; rte, seed 1: no file\nbroken: cola, seed 0: NaN\n" in captured.err
    assert f"{len(records)} cells in runs/x" in captured.out
