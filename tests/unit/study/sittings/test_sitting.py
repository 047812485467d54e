"""What fits into the time, what is kept, what is said; a real cell from plan to report."""

import itertools
import json
import sys
import tarfile
import textwrap
import time
from pathlib import Path

import pytest

from sharedqkv.evidence.report.collect import read_study
from sharedqkv.evidence.report.measures import measure
from sharedqkv.schema import load_yaml
from sharedqkv.study.sittings import Cell, Records, Sitting, load_plan
from sharedqkv.study.sittings.sitting import Commands, _Running
from sharedqkv.study.sittings.whole_cell import WholeCell
from sharedqkv.training.run_folder import RunFolder


def test_a_whole_sitting_keeps_records_and_lets_weights_go(sitting, records, tmp_path):
    made = sitting(side_by_side=4)
    made.run()
    for rate in (1e-3, 2e-3):
        tried = records.run(Cell("shared", "rotary", tried_rate=rate)).info()["recipe"]
        assert tried["learning_rate"] == rate
    assert records.chosen_rate("shared") == 2e-3
    assert records.run(Cell("shared", "rotary")).info()["recipe"]["learning_rate"] == 2e-3
    assert not list(tmp_path.glob("**/*.safetensors"))
    assert made.failed == {Cell("shared", "rotary", 1), Cell("shared", "absolute", 1)}
    assert any("failed" in line and "no luck" in line for line in made.said)
    assert made.said[-1] == "6 of 8 cells are done"
    with tarfile.open(tmp_path / "records.tar.xz") as tar:
        names = tar.getnames()
    assert "records/pretrain/standard-rotary/0/run.json" in names
    lines = [json.loads(line) for line in (records.folder / "sittings.jsonl").read_text().splitlines()]
    assert len(lines) == 8
    assert {line["side_by_side"] for line in lines} == {4}


def test_the_report_reads_the_records(sitting, records):
    sitting().run()
    study = read_study(records.folder)
    assert {name: [run.final_loss for run in runs] for name, runs in study.pretraining.items()} == {
        "standard, rotary": [2.0],
        "shared, rotary": [2.0],
    }
    assert not study.problems
    assert study.corpus.length == 32
    assert study.search.losses["shared, rotary"] == {1e-3: 3.0, 2e-3: 2.0}


def test_checks_are_kept_and_are_no_seeds(sitting, plan_with_checks, tmp_path):
    records = Records(plan_with_checks, tmp_path / "records")
    made = sitting(side_by_side=4, records=records)
    made.run()
    assert made.said[-1] == "10 of 12 cells are done"  # all but two of shared, which fail
    runs = {run.name: json.loads((run / "run.json").read_text())["recipe"] for run in records.folder.glob("checks/*/*")}
    assert {name: (recipe["learning_rate"], recipe["max_tokens"]) for name, recipe in runs.items()} == {
        "0-rate-0.001": (1e-3, 4000),
        "0-tokens-2000": (2e-3, 2000),
        "0-tokens-3000": (2e-3, 3000),
    }
    with tarfile.open(tmp_path / "records.tar.xz") as tar:
        assert "records/checks/standard-rotary/0-tokens-2000/metrics.jsonl" in tar.getnames()
    study = read_study(records.folder)
    assert [run.final_loss for run in study.pretraining["standard, rotary"]] == [2.0]
    again = sitting(records=records)
    again.run()
    assert not any("checks/" in line for line in again.said)


def test_what_was_run_before_is_not_run_again(sitting, records):
    sitting().run()
    again = sitting()
    again.run()
    assert all("failed" in line for line in again.said[:-1])  # those two are tried once more, and nothing else


def test_cells_of_some_variants_only(sitting, records):
    made = sitting(variants=("standard",))
    made.run()
    assert made.said[-1] == "3 of 8 cells are done"  # two of the search and a run
    assert not list(records.folder.glob("*/shared*"))


def test_variants_must_be_in_the_plan(records):
    with pytest.raises(ValueError, match="narrow is not in the plan, which has standard, shared"):
        Sitting(records, Path("c"), Path("w"), 1.0, variants=("standard", "narrow"))


def test_what_does_not_fit_is_left_for_the_next_sitting(sitting, records):
    records.folder.mkdir()
    records.note(cell="pretrain/standard-rotary/7", seconds=1000.0, side_by_side=1, exit_code=0)
    records.note(cell="search/standard-rotary/0.1", seconds=1000.0, side_by_side=1, exit_code=1)
    made = sitting()
    made.run()
    assert made.said[-1] == "4 of 8 cells are done"
    assert records.state(Cell("standard", "rotary")) == "pending"


def test_what_is_known_better_than_from_before_can_be_told(sitting, records):
    records.folder.mkdir()
    records.note(cell="pretrain/standard-rotary/7", seconds=1000.0, side_by_side=1, exit_code=0)
    made = sitting()
    made.expected = 5.0
    made.run()
    assert made.said[-1] == "6 of 8 cells are done"


def test_a_cell_that_takes_longer_than_expected_is_stopped(sitting, records, tmp_path):
    records.folder.mkdir()
    records.note(cell="search/standard-rotary/0.1", seconds=1.0, side_by_side=1, exit_code=0)
    made = sitting(seconds=3.0)
    slow = tmp_path / "slow.py"
    slow.write_text("import time; time.sleep(60)")
    made.commands = Commands((sys.executable, str(slow)))
    made.run()
    assert made.said[0] == "search/standard-rotary/0.001: stopped before its end"
    assert made.running[0].process.returncode


def test_a_corpus_must_be_there(records):
    with pytest.raises(FileNotFoundError, match=r"nowhere has no manifest.json: make it with `sharedqkv prepare`"):
        Sitting(records, Path("nowhere"), Path("w"), 10).run()


def test_time_cannot_be_negative(records):
    with pytest.raises(ValueError, match="seconds must be positive"):
        Sitting(records, Path("c"), Path("w"), -1.0)
    with pytest.raises(ValueError, match="expected 0 s of the device for a run: must be positive"):
        Sitting(records, Path("c"), Path("w"), 1.0, expected=0.0)


@pytest.fixture
def sharing(sitting):
    """A sitting of 1,000 s with cells that run: seconds since their start, expected and used of the device."""

    def make(told_s, *running):
        made = sitting(seconds=1000.0, side_by_side=6)
        made.expected = told_s
        for ago_s, expected_s, used_s in running:
            began = time.monotonic() - ago_s
            made.running.append(_Running(Cell("shared", "rotary"), None, began, Path("run"), expected_s, used_s))
        return made._ends_in_time(Cell("standard", "rotary"))

    return make


def test_a_cell_must_end_with_those_that_share_the_device(sharing):
    half_done, nearly_done = (300.0, 800.0, 400.0), (300.0, 500.0, 480.0)  # 400 and 50 s are left
    assert sharing(540.0, half_done, nearly_done)
    assert not sharing(560.0, half_done, nearly_done)


def test_a_start_is_hidden_by_those_past_theirs(sharing):
    assert sharing(540.0, (300.0, 800.0, 400.0), (1.0, 50.0, 0.0))
    assert not sharing(540.0, (1.0, 400.0, 0.0), (1.0, 50.0, 0.0))  # all are starting: 75 s more
    assert not sharing(930.0)
    assert sharing(920.0)
    assert not sharing(930.0, (300.0, 100.0, 95.0))  # it ends before the newcomer has started


def test_where_others_are_late_so_will_it_be(sharing):
    assert sharing(700.0, (300.0, 100.0, 100.0))
    assert not sharing(700.0, (300.0, 100.0, 150.0))
    assert sharing(700.0, (300.0, 0.0, 0.5))


def test_alone_on_the_device_nothing_is_added(sitting):
    made = sitting(seconds=100.0)
    made.expected = 99.0
    assert made._ends_in_time(Cell("standard", "rotary"))


def test_those_that_run_share_the_time(sitting, records):
    made, began = sitting(side_by_side=4), time.monotonic()
    made.run()
    elapsed = time.monotonic() - began
    told = [json.loads(line) for line in (records.folder / "sittings.jsonl").read_text().splitlines()]
    assert all(0 < note["device_s"] <= note["seconds"] for note in told[:4])
    assert 0.5 * elapsed < sum(note["device_s"] for note in told) < elapsed + 0.5  # each is rounded to a tenth


def test_cells_do_not_start_at_once_lest_they_end_at_once(sitting, monkeypatch, tmp_path):
    monkeypatch.setattr("sharedqkv.study.sittings.sitting.APART_S", 0.5)
    made, started = sitting(side_by_side=4), []
    sleeper = tmp_path / "sleeper.py"
    sleeper.write_text("import time; time.sleep(60)")
    made.commands = Commands((sys.executable, str(sleeper)))
    start = made._start

    def note_and_start(*found):
        started.append(time.monotonic())
        start(*found)
        if len(started) == 4:
            made.deadline = time.monotonic()

    made._start, made._ends_in_time = note_and_start, lambda cell: True
    made.run()
    assert len(started) == 4  # one by one, but all
    assert all(later - earlier >= 0.5 for earlier, later in itertools.pairwise(started))


def test_what_planning_takes_is_not_counted_to_what_is_planned(sitting, records):
    made = sitting()
    plan_next = made._next

    def plan_slowly(cells):
        time.sleep(0.5)
        return plan_next(cells)

    made._next = plan_slowly
    began = time.monotonic()
    made.run()
    elapsed = time.monotonic() - began
    told = [json.loads(line) for line in (records.folder / "sittings.jsonl").read_text().splitlines()]
    assert all(note["device_s"] <= note["seconds"] for note in told)
    planned = 0.5 * len(told)
    assert sum(note["device_s"] for note in told) <= elapsed - planned + 0.05 * len(told)  # each rounded to a tenth


def test_stopping_a_cell_stops_its_children(sitting, records, tmp_path):
    records.folder.mkdir()
    records.note(cell="search/standard-rotary/0.1", seconds=1.0, side_by_side=1, exit_code=0)
    made = sitting(seconds=3.0)
    parent = tmp_path / "parent.py"
    child = "import time; time.sleep(6); open(r'{}', 'w')".format(tmp_path / "outlived")
    parent.write_text(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")
    made.commands = Commands((sys.executable, str(parent)))
    made.run()
    time.sleep(5)
    assert not (tmp_path / "outlived").exists()


def test_tasks_must_be_there(records):
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder of tasks"):
        Sitting(records, Path("c"), Path("w"), 1.0, task_data=Path("nowhere"))


def test_a_whole_cell_gets_its_tasks_in_their_order(plan_with_tasks, tmp_path):
    """The longest is named first: they are run side by side."""
    study = (tmp_path / "study.yaml").read_text()
    (tmp_path / "study.yaml").write_text(study.replace("[acceptability, sst2]", "[sst2, acceptability]"))
    plan = load_plan(tmp_path / "plan.yaml")
    sitting = Sitting(Records(plan, tmp_path / "records"), Path("c"), tmp_path, 1.0)
    told = load_yaml(WholeCell, sitting._write_whole_cell(tmp_path, plan.tasks))
    assert list(told.tasks) == list(told.robust) == ["sst2", "acceptability"]


@pytest.fixture
def world(tmp_path):
    from sharedqkv.data.prepare import PrepareArguments, prepare
    from sharedqkv.study.world import World, write_world

    write_world(tmp_path / "world", World(0), 60, {"train": 60, "validation": 30, "out_of_domain": 30})
    texts = [(str(tmp_path / "world" / "corpus" / f"{split}.jsonl"),) for split in ("train", "validation")]
    corpus = str(tmp_path / "corpus")
    prepare(PrepareArguments(corpus, texts[0], texts[1], train_vocab_size=300, length=32, processes=1))
    return tmp_path / "world"


@pytest.mark.slow
def test_a_real_cell_from_plan_to_report(world, tmp_path):
    """Through the commands themselves: pre-training, two fine-tunings, noise and another domain."""
    from sharedqkv.evidence.report import build_report

    (tmp_path / "study.yaml").write_text(
        textwrap.dedent(
            """\
            title: One cell
            variants: [standard]
            positions: [rotary]
            corpus: {world: 60, train_vocab_size: 300, length: 32}
            pretrain:
              recipe: tiny_cpu
              max_tokens: 1280
              rows_per_step: 8
              rows_per_device: 8
              logging_steps: 1
              model: {hidden_size: 32, intermediate_size: 32}
            finetune:
              tasks: [acceptability]
              seeds: 2
              epochs: 1
              max_length: 32
              search: {learning_rate: [1.0e-4, 1.0e-3]}
            robust: {noise: keyboard, severity: [5], domains: acceptability_out_of_domain}
            """
        )
    )
    (tmp_path / "plan.yaml").write_text(
        "study: study.yaml\nsearch: {learning_rates: [5.0e-4, 1.0e-3], max_tokens: 512, position: rotary}\n"
        "order:\n- {variants: [standard], positions: [rotary], seeds: [0]}\n"
        "- {variants: [standard], positions: [rotary], seeds: [0], max_tokens: [768]}\n"
    )
    records = Records(load_plan(tmp_path / "plan.yaml"), tmp_path / "records")
    said = []
    sitting = Sitting(records, tmp_path / "corpus", tmp_path / "work", seconds=900, task_data=world / "tasks")
    sitting.say = said.append
    sitting.run()
    assert said[-1] == "4 of 4 cells are done", said
    run = RunFolder(tmp_path / "records" / "pretrain" / "standard" / "0")
    assert (run.info()["step"], run.info()["state"]) == (5, "done")
    assert RunFolder(tmp_path / "records" / "checks" / "standard" / "0-tokens-768").info()["step"] == 3
    tried = RunFolder(tmp_path / "records" / "search" / "standard" / f"{records.chosen_rate('standard'):g}")
    losses = [[record["loss"] for record in r.metrics() if "loss" in record] for r in (run, tried)]
    assert losses[1] == losses[0][: len(losses[1])]  # the beginning of the run: same rows and masks
    measures = measure(read_study(records.folder))
    assert measures.quality.scores["acceptability"]["standard"].seeds == ((0, 0), (0, 1))
    assert [domain.domain for domain in measures.robustness.analysis.domains] == ["acceptability_out_of_domain"]
    assert not list(tmp_path.glob("**/*.safetensors"))
    assert "keyboard" in (build_report(records.folder).parent / "report.md").read_text()
