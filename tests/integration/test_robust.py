"""Robustness as a user tries it: noise and domains on fine-tuned models, restarts, changes, errors, the report."""

import csv
import gc
import json
import shutil
import signal
import subprocess
import sys
import time
import weakref
from types import SimpleNamespace

import pytest
from finetuning_helpers import SQUAD_FAST, make_model, make_questions, make_rows, make_task, run_here, write_jsonl

import sharedqkv_console
from sharedqkv.data.tokenizer import train_tokenizer
from sharedqkv.robustness import grid as grid_module
from sharedqkv.robustness import tried as tried_module
from sharedqkv.robustness import workers as workers_module
from sharedqkv.robustness.grid import Plan, run_grid
from sharedqkv.robustness.noises import NOISES
from sharedqkv.tasks.cells import read_predictions
from sharedqkv.tasks.predict import Predictor

PLAN = Plan(noises=["keyboard", "gaussian"], severities=(1, 5), seeds=(0,), domains=["imdb"], tasks=["sst2"])
CELLS = 4
"""Of each model under PLAN: clean, two noises, a domain."""
LEARNS = {"tasks": "sst2", "seeds": "2", "epochs": 12, "learning_rate": 0.005}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Data, and runs of two variants whose models have learned SST-2."""
    folder = tmp_path_factory.mktemp("robust")
    data = make_task(folder / "data", "sst2", 48, 12)
    write_jsonl(data / "domains" / "imdb" / "test.jsonl", make_rows("sst2", 10, seed=7))
    for variant in ("standard", "shared"):
        model = make_model(folder / f"model-{variant}", variant)
        assert run_here(model, data, folder / variant, "--keep-models", **LEARNS) == 0
    return folder


@pytest.fixture
def place(made, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(made, tmp_path / "copy")


def robust(place, *flags, runs=("standard", "shared"), noise="keyboard,gaussian", severity="1,5", domains="imdb"):
    options = ["--noise", noise, "--severity", severity, "--domains", domains, "--data", str(place / "data")]
    names = [str(place / run) for run in runs]
    return sharedqkv_console.main(["robust", *names, *options, "--output", str(place / "report"), *flags])


def grid(place, runs=("standard", "shared"), **changes):
    plan = Plan(**{**vars(PLAN), **changes})
    return run_grid([str(place / run) for run in runs], plan, str(place / "data"))


def kept(place, run="*"):
    """Every prediction file's content, by its path."""
    files = sorted(place.glob(f"{run}/robustness/*/*/*/*.jsonl"))
    return {str(file.relative_to(place)): file.read_bytes() for file in files}


def counts(outcome):
    return outcome.ran, outcome.skipped


def test_the_command_keeps_predictions_and_writes_a_report(place, capsys):
    assert robust(place) == 0
    words = capsys.readouterr().out
    assert f"{4 * CELLS} cells run, 0 finished before" in words
    assert "shared does better than standard on sst2, mean of all noises" in words
    assert "shared does better than standard on sst2 → imdb (score)" in words

    records = read_predictions(place / "shared/robustness/sst2/keyboard/0/1.jsonl")
    assert [record["severity"] for record in records] == [1] * 12 + [5] * 12
    for record in records:
        assert list(record) == ["id", "label", "prediction", "scores", "severity"]
        assert record["prediction"] == record["scores"].index(max(record["scores"]))
    assert len(read_predictions(place / "shared/robustness/sst2/imdb/0/1.jsonl")) == 10

    clean = json.loads((place / "shared/robustness/sst2/clean/0/0.json").read_text())
    tuned = json.loads((place / "shared/cells/sst2/0.json").read_text())["splits"]["sst2/validation"]
    assert clean["metrics"]["0"] == tuned["metrics"], "without noise the score is that of fine-tuning"
    assert clean["chance"] == 0.5

    report = (place / "report" / "report.md").read_text()
    assert "# Robustness of standard, shared" in report
    assert "![" in report
    with open(place / "report" / "curves.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["severity"] for row in rows[:3]] == ["0", "1", "5"]
    assert {row["noise"] for row in rows} == {"keyboard", "gaussian"}

    before = kept(place)
    assert len(before) == 4 * CELLS
    assert robust(place) == 0
    assert f"0 cells run, {4 * CELLS} finished before" in capsys.readouterr().out
    assert kept(place) == before


def test_what_has_changed_is_run_again_and_nothing_else(place):
    assert counts(grid(place)) == (4 * CELLS, 0)
    assert counts(grid(place)) == (0, 4 * CELLS)
    assert counts(grid(place, severities=(1, 3))) == (8, 8), "both noises of four models"
    assert counts(grid(place, severities=(1, 3), seeds=(0, 1))) == (8, 16), "a second noise seed beside the first"
    write_jsonl(place / "data" / "domains" / "imdb" / "test.jsonl", make_rows("sst2", 8, seed=9))
    assert counts(grid(place, severities=(1, 3))) == (4, 12), "the changed domain"
    write_jsonl(place / "data" / "sst2" / "validation.jsonl", make_rows("sst2", 14, seed=9))
    assert counts(grid(place, severities=(1, 3))) == (12, 4), "all but the domain"
    assert counts(grid(place, severities=(1, 3), limit=6)) == (16, 0)
    run_here(place / "model-shared", place / "data", place / "shared", "--keep-models", **{**LEARNS, "epochs": 1})
    assert counts(grid(place, severities=(1, 3), limit=6)) == (8, 8), "the models that were trained again"


def test_damaged_cells_are_run_again(place):
    grid(place)
    whole = kept(place)
    predictions = place / "shared/robustness/sst2/keyboard/0/1.jsonl"
    predictions.write_bytes(predictions.read_bytes()[:-20])
    (place / "shared/robustness/sst2/gaussian/0/0.json").write_text("{ cut off")
    (place / "standard/robustness/sst2/imdb/0/0.jsonl").unlink()
    assert counts(grid(place)) == (3, 4 * CELLS - 3)
    assert kept(place) == whole


def test_interrupted_and_restarted_gives_the_same_predictions(place, made, monkeypatch, capsys):
    whole = shutil.copytree(made, place / "whole")
    grid(whole)
    real, calls = grid_module.table_outputs, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(grid_module, "table_outputs", interrupted)
    assert robust(place) == 130
    assert "the same command goes on from there" in capsys.readouterr().err
    assert len(kept(place)) == 5
    assert robust(place) == 0
    assert f"{4 * CELLS - 5} cells run, 5 finished before" in capsys.readouterr().out
    assert kept(place) == kept(whole)


def test_the_report_can_be_left_for_later(place, capsys):
    options = ["--noise", "gaussian", "--severity", "1", "--data", str(place / "data")]
    command = ["robust", str(place / "standard"), *options]
    assert sharedqkv_console.main(command) == 0
    assert "the same command with --output makes the report" in capsys.readouterr().out
    assert kept(place)
    assert sharedqkv_console.main([*command, "--output", str(place / "later")]) == 0
    assert "0 cells run" in capsys.readouterr().out
    assert (place / "later" / "report.md").exists()


def test_killed_and_restarted_gives_the_same_predictions(place, made):
    whole = shutil.copytree(made, place / "whole")
    command = [
        *(sys.executable, "-m", "sharedqkv_console", "robust", str(place / "shared"), str(place / "standard")),
        *("--severity", "1,5", "--data", str(place / "data"), "--output", str(place / "report")),
    ]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(kept(place)) < 3 and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    child.kill()
    assert child.wait() == -signal.SIGKILL  # it was not yet at its end
    assert grid(place, noises=NOISES, domains=[]).skipped >= 2
    grid(whole, noises=NOISES, domains=[])
    assert kept(place) == kept(whole)


def test_severities_share_batches_and_do_not_change_each_other(place, made):
    alone = shutil.copytree(made, place / "alone")
    grid(place, noises=["keyboard", "gaussian", "token_dropout"], severities=(1, 3, 5), domains=[])
    for severity in (1, 3, 5):
        grid(alone, noises=["keyboard", "gaussian", "token_dropout"], severities=(severity,), domains=[])
        for noise in ("keyboard", "gaussian", "token_dropout"):
            file = f"standard/robustness/sst2/{noise}/0/0.jsonl"
            together = [record for record in read_predictions(place / file) if record["severity"] == severity]
            for one, other in zip(together, read_predictions(alone / file), strict=True):
                assert one["id"] == other["id"]
                assert one["scores"] == pytest.approx(other["scores"], abs=1e-4)


def test_equal_texts_get_noise_of_their_own_in_the_model(place):
    rows = [{"sentence": "the film is fine", "label": 1, "idx": number} for number in range(5)]
    write_jsonl(place / "data" / "sst2" / "validation.jsonl", rows)
    grid(place, noises=["gaussian"], severities=(5,), domains=[])
    clean, noisy = (
        read_predictions(place / f"shared/robustness/sst2/{name}/0/0.jsonl") for name in ("clean", "gaussian")
    )
    assert len({tuple(record["scores"]) for record in clean}) == 1
    assert len({tuple(record["scores"]) for record in noisy}) == 5


def test_models_with_other_inputs_get_their_own(place):
    """Another tokenizer, another max_length: what a model answers does not hang on who is tried beside it."""
    other = make_model(place / "model-other", seed=1)
    train_tokenizer(["the film is fine and the book is dull"] * 3, 60).save_pretrained(other)
    options = {**LEARNS, "seeds": "1"}
    run_here(other, place / "data", place / "other", "--keep-models", **options)
    run_here(place / "model-standard", place / "data", place / "short", "--keep-models", **{**options, "max_length": 6})
    runs = ("standard", "other", "short")
    for run in runs:
        grid(place, runs=(run,))
    apart = kept(place)
    for run in runs:
        shutil.rmtree(place / run / "robustness")
    grid(place, runs=runs)
    assert kept(place) == apart
    clean = [json.loads((place / run / "robustness/sst2/clean/0/0.json").read_text()) for run in runs]
    assert [record["truncated"]["0"] > 0 for record in clean] == [False, False, True]


def test_squad_through_windows(place, monkeypatch):
    """Paragraphs longer than a window, noise in the text and in the model."""
    real, noisy_rows = grid_module.noise_in, []

    def watched(model, tokenizer, noise, seed, rows):
        noisy_rows.append(rows)
        return real(model, tokenizer, noise, seed, rows)

    monkeypatch.setattr(grid_module, "noise_in", watched)
    for split, count in (("train", 40), ("validation", 10)):
        write_jsonl(place / "data" / "squad" / f"{split}.jsonl", make_questions(count))
    for variant in ("standard", "shared"):
        options = {**SQUAD_FAST, "tasks": "squad", "seeds": "1", "max_length": 24}
        assert run_here(place / f"model-{variant}", place / "data", place / variant, "--keep-models", **options) == 0
    assert robust(place, "--tasks", "squad", noise="drop,uniform,token_dropout", domains="none") == 0
    records = read_predictions(place / "shared/robustness/squad/drop/0/0.jsonl")
    assert len(records) == 20
    assert any(record["label"] not in (["anna"], ["bob"], ["carl"]) for record in records), "answers are damaged too"
    rows = noisy_rows[0]
    assert len(set(rows)) == len(rows) > 20, "every window has noise of its own"
    assert {row.key for row in rows} >= {"q0/0", "q9/0"}
    assert any(row.key.endswith("/1") for row in rows)


def test_a_missing_domain_is_told_and_the_rest_is_done(place, capsys):
    assert robust(place, domains="imdb,yelp") == 1
    captured = capsys.readouterr()
    assert "broken: sst2, yelp: " in captured.err
    assert "no split test of yelp" in captured.err
    assert f"{4 * CELLS} cells run" in captured.out
    report = (place / "report" / "report.md").read_text()
    assert "imdb" in report
    assert "- sst2, yelp: " in report


def test_what_is_broken_now_is_not_reported_from_an_earlier_run(place, capsys):
    robust(place)
    (place / "data" / "domains" / "imdb" / "test.jsonl").unlink()
    assert robust(place) == 1
    assert not (place / "report" / "domains.csv").exists()
    assert "no split test of imdb" in (place / "report" / "report.md").read_text()


def test_excluded_noises_are_told_with_the_reason(place, capsys):
    make_task(place / "data", "cola")
    for variant in ("standard", "shared"):
        run_here(place / f"model-{variant}", place / "data", place / variant, "--keep-models", tasks="cola", seeds="1")
    assert robust(place, "--tasks", "cola", domains="none") == 0
    assert "not tried: cola, keyboard: acceptability is a judgement on the form" in capsys.readouterr().out
    assert "- cola, keyboard: acceptability is a judgement" in (place / "report" / "report.md").read_text()
    assert not (place / "shared/robustness/cola/keyboard").exists()


def test_inputs_made_ahead_by_other_processes_are_the_same(place, made, monkeypatch):
    """As is done for a GPU."""
    ahead = shutil.copytree(made, place / "ahead")
    grid(place)
    has_gpu = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True))
    monkeypatch.setattr(workers_module, "torch", has_gpu)
    monkeypatch.setattr(workers_module.os, "cpu_count", lambda: 4)
    grid(ahead)
    assert kept(ahead) == kept(place)


def test_models_are_not_kept_in_memory(place, monkeypatch):
    """Only those of one group at a time."""
    alive, at_once = weakref.WeakSet(), []

    class Counted(Predictor):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            gc.collect()
            alive.add(self.model)
            at_once.append(len(alive))

    monkeypatch.setattr(tried_module, "Predictor", Counted)
    monkeypatch.setattr(grid_module, "_MODELS_AT_ONCE", 1)
    assert counts(grid(place)) == (4 * CELLS, 0)
    assert at_once == [1, 1, 1, 1]


BAD_REQUESTS = {
    "noise": (["--noise", "keybord"], "--noise: unknown keybord; known: all, text"),
    "severity": (["--severity", "7"], "--severity '7': expected numbers from 1 to 5"),
    "domain": (["--domains", "imbd"], "unknown 'imbd'; known: all"),
    "domain of another task": (["--domains", "imdb,hans"], "hans is for models of mnli, and the runs' tasks are sst2"),
    "seeds": (["--seeds", "none"], "--seeds 'none': expected a count"),
    "task": (["--tasks", "sst3"], "sst3"),
    "task beside a good one": (["--tasks", "sst2,sst3"], "sst3"),
    "examples": (["--examples", "0"], "--examples 0: expected at least 1"),
    "alpha": (["--alpha", "5"], "alpha 5"),
    "data": (["--data", "nowhere"], "nowhere"),
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_bad_requests_are_told_before_any_work(case, made, capsys):
    flags, message = BAD_REQUESTS[case]
    assert robust(made, *flags) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert kept(made) == {}


def test_bad_runs_are_told_before_any_work(place, capsys):
    model, data = place / "model-standard", place / "data"
    run_here(model, data, place / "unkept", **{**LEARNS, "epochs": 1})
    make_task(data, "cola")
    run_here(model, data, place / "cola", "--keep-models", tasks="cola", seeds="1")
    (place / "pretrained").mkdir()
    (place / "pretrained" / "run.json").write_text(json.dumps({"kind": "pretrain"}))
    shutil.copytree(place / "shared", place / "again")
    for bad, message in (
        (
            "unkept",
            "kept no model of sst2, seed 0; sst2, seed 1: run its `sharedqkv finetune` again with --keep",
        ),
        ("pretrained", "is a run of kind pretrain"),
        ("nowhere", "is no run folder"),
        ("cola", "the runs have no task in common"),
        ("again", "two of these runs fine-tune the same checkpoint"),
    ):
        for runs in (("shared", bad), (bad, "shared")):
            assert robust(place, runs=runs) == 2
            assert message in capsys.readouterr().err
            assert kept(place) == {}, bad


def test_a_run_given_twice_is_told(made, capsys):
    for flags in ([], ["--separate"]):
        assert robust(made, *flags, runs=("shared", "shared")) == 2
        assert "a run is given twice" in capsys.readouterr().err


def test_one_seed_against_several_gives_curves_but_no_claim(place, capsys):
    run_here(place / "model-shared", place / "data", place / "one", "--keep-models", **{**LEARNS, "seeds": "1"})
    assert robust(place, runs=("standard", "one")) == 0
    report = (place / "report" / "report.md").read_text()
    assert "shared has 1 and standard has 2 fine-tuning seeds" in report
    assert "| sst2 | keyboard | shared |" in report


def test_a_task_that_not_every_run_has_is_told(place, capsys):
    make_task(place / "data", "cola")
    run_here(place / "model-shared", place / "data", place / "shared", "--keep-models", tasks="cola", seeds="1")
    assert robust(place, domains="none") == 0
    assert "- cola: not every run has it" in (place / "report" / "report.md").read_text()
    assert not (place / "shared/robustness/cola").exists()


def test_a_model_alone_gets_curves(place, capsys):
    assert robust(place, runs=("shared",)) == 0
    report = (place / "report" / "report.md").read_text()
    assert "## sst2 under noise" in report
    assert "Claims" not in report
