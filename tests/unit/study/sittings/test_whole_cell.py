"""The stages of a whole cell: which commands are given, what is put together, what a failure leaves."""

import dataclasses
import json
import multiprocessing
import subprocess
import time
from pathlib import Path

import pytest

from sharedqkv.robustness.conditions import Condition
from sharedqkv.robustness.grid import Plan
from sharedqkv.robustness.tried import trial_predictions
from sharedqkv.study.sittings.run_whole_cell import _Processes, main, run_whole_cell
from sharedqkv.study.sittings.whole_cell import FINETUNED, SECONDS, WholeCell, robust_arguments
from sharedqkv.tasks.cells import kept_cells, read_predictions
from sharedqkv.tasks.recipe import FinetuneRecipe

CONSOLE = """\
# Stands for `sharedqkv`: notes its arguments, and leaves what `finetune` leaves.
import json, os, sys
from pathlib import Path
import yaml

def main(arguments):
    print("on its way")
    with open("commands.jsonl", "a") as file:
        file.write(json.dumps([*arguments, os.environ.get("CUDA_MPS_CLIENT_PRIORITY", "first")]) + "\\n")
    if arguments[0] == "finetune":
        finetune(arguments)
    if arguments[0] == "robust":
        if "no_such_noise" in arguments:
            raise ValueError("no such noise")
        file = Path(arguments[1], "robustness", "rte", "keyboard", "0", "2.jsonl")
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"id": 1, "prediction": 0, "scores": [0.5], "severity": 3}) + "\\n")
        file.with_suffix(".json").write_text("{}")
    return 3 if Path("no_way").exists() else 0

def finetune(arguments):
    given = dict(zip(arguments[1::2], arguments[2::2]))
    run, task, seeds = Path(given["--output"]), given["--tasks"], given["--seeds"].rstrip(",").split(",")
    recipe = yaml.safe_load(open(given["--recipe"]))
    if recipe["search"]:
        recipe |= {"learning_rate": recipe["search"]["learning_rate"][-1], "search": {}}
        (run / "search").mkdir()
        (run / "search" / f"{task}.json").write_text("{}")
    for seed in seeds:
        train(run, task, seed, recipe)
    sitting = {"command": sys.argv, "process": os.getpid(), "threads": sys.modules["torch"].get_num_threads()}
    info = {"kind": "finetune", "state": "done", "sittings": [sitting], "scores": {}}
    (run / "run.json").write_text(json.dumps(info))

def train(run, task, seed, recipe):
    if (task, seed) == ("rte", "666"):
        sys.exit("error: no such luck")
    if (task, seed) == ("rte", "667"):
        raise RuntimeError("out of memory")
    if (task, seed) == ("rte", "668"):
        os._exit(9)
    for folder in (run / "cells" / task, run / "predictions" / task / "validation", run / "models" / task / seed):
        folder.mkdir(parents=True, exist_ok=True)
    metrics = {"score": recipe["learning_rate"]}
    splits = {f"{task}/validation": {"scored_as": task, "metrics": metrics}}
    record = {"recipe": recipe, "task": task, "seed": int(seed), "splits": splits}
    (run / "cells" / task / f"{seed}.json").write_text(json.dumps(record))
    answer = {"id": 1, "prediction": 0.123456, "scores": [0.5]}
    (run / "predictions" / task / "validation" / f"{seed}.jsonl").write_text(json.dumps(answer) + "\\n")
    (run / "models" / task / seed / "weights").write_text(seed)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


def work_in(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    (folder / "stand_in.py").write_text(CONSOLE)
    (folder / "run").mkdir()
    recipes = {
        "cola": FinetuneRecipe(search={"learning_rate": [1e-5, 3e-5]}),
        "rte": FinetuneRecipe(learning_rate=2e-5, seeds_at_once=2),
    }
    tasks = {task: recipe.to_dict() for task, recipe in recipes.items()}
    return WholeCell(
        "run", tasks, seeds=(0, 1, 2), side_by_side=2, data="data", robust={"rte": ["--noise", "keyboard,"]}
    )


def run(cell):
    run_whole_cell(cell, "stand_in")
    commands = [json.loads(line) for line in Path("commands.jsonl").read_text().splitlines()]
    assert [command.pop() for command in commands] == ["1"] + ["first"] * (len(commands) - 1)  # pre-training gives way
    return commands


@pytest.fixture
def cell(tmp_path, monkeypatch):
    return dataclasses.replace(work_in(tmp_path, monkeypatch), side_by_side=1)  # a process takes seconds to start


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Folder of a cell that ended well, and the commands it gave."""
    folder = tmp_path_factory.mktemp("cell")
    with pytest.MonkeyPatch.context() as patch:
        commands = run(work_in(folder, patch))
    return folder / "run", commands


def test_stages_come_one_after_another(done):
    folder, commands = done
    assert commands[0] == ["pretrain", "run/recipe.yaml"]
    assert [command[0] for command in commands[1:-1]] == ["finetune"] * 5
    assert commands[-1] == ["robust", "run/finetune", "--tasks", "rte", "--noise", "keyboard,", "--data", "data"]
    assert list(json.loads((folder / SECONDS).read_text())) == ["pretrain", "finetune", "robust", "compress"]


def test_the_parts_become_one_run(done):
    folder, _ = done
    whole = folder / FINETUNED
    assert [(kept.task, kept.seed) for kept in kept_cells(whole)] == [(t, s) for t in ("cola", "rte") for s in range(3)]
    assert sorted(path.read_text() for path in whole.glob("models/cola/*/weights")) == ["0", "1", "2"]
    assert (whole / "search" / "cola.json").exists()
    assert json.loads((whole / "run.json").read_text())["scores"]["cola"]["seeds"] == [0, 1, 2]
    assert not (folder / "parts").exists()


def test_predictions_become_small(done):
    run = done[0] / FINETUNED
    assert not list(run.rglob("*.jsonl"))
    (record,) = read_predictions(run / "predictions" / "rte" / "validation" / "1.jsonl")
    assert record == {"id": 1, "prediction": 0.1235, "scores": [0.5]}
    (record,) = trial_predictions(run, "rte", Condition("keyboard"), 2)
    assert record == {"id": 1, "prediction": 0, "severity": 3}, "under noise there are too many to keep scores"


def test_processes_start_once_and_each_command_is_told_as_its_own(done):
    sittings = json.loads((done[0] / FINETUNED / "run.json").read_text())["sittings"]
    assert len(sittings) == 5
    assert len({sitting["process"] for sitting in sittings}) <= 2
    assert {sitting["threads"] for sitting in sittings} == {1}, "each has a core"
    assert sorted(sitting["command"][:2] + sitting["command"][5:7] for sitting in sittings) == sorted(
        ["sharedqkv", "finetune", task, "--seeds"] for task in ("cola", "cola", "cola", "rte", "rte")
    )


def test_one_seed_searches_and_the_others_take_what_it_found(done):
    folder = done[0] / FINETUNED
    info = json.loads((folder / "run.json").read_text())
    assert info["scores"]["cola"]["metrics"]["score"] == {"mean": pytest.approx(3e-5), "std": pytest.approx(0)}
    assert info["scores"]["rte"]["metrics"]["score"]["mean"] == pytest.approx(2e-5)
    assert len(list((folder / "search").iterdir())) == 1


def test_seeds_that_are_trained_together_are_one_command(done):
    asked = sorted((command[4], command[6]) for command in done[1] if command[0] == "finetune")
    assert asked == [("cola", "0,"), ("cola", "1,"), ("cola", "2,"), ("rte", "0,1,"), ("rte", "2,")]


def test_the_first_seeds_that_are_trained_together_search(cell):
    recipe = {**cell.tasks["cola"], "seeds_at_once": 2}
    commands = run(dataclasses.replace(cell, tasks={"cola": recipe}, robust={}))
    assert [command[6] for command in commands[1:]] == ["0,1,", "2,"]
    assert [kept.record()["recipe"]["learning_rate"] for kept in kept_cells(Path("run", FINETUNED))] == [3e-5] * 3


@pytest.mark.parametrize(("at_once", "first"), [(2, "cola"), (3, "rte")])
def test_only_a_search_that_others_wait_for_comes_first(cell, at_once, first):
    cola = {**cell.tasks["cola"], "seeds_at_once": at_once}
    tasks = {"rte": {**cell.tasks["rte"], "seeds_at_once": 3}, "cola": cola}
    assert run(dataclasses.replace(cell, tasks=tasks, robust={}))[1][4] == first


def test_models_are_kept_only_for_a_stage_that_needs_them(cell):
    commands = run(dataclasses.replace(cell, robust={}))
    assert not any("--keep-models" in command for command in commands)
    assert {command[0] for command in commands} == {"pretrain", "finetune"}


@pytest.mark.parametrize(
    ("seed", "words"),
    [
        (666, r"fine-tuning on rte with seed 666 ended with 1:\n.*\n.*no such luck"),
        (667, r"(?s)fine-tuning on rte with seed 667 ended with 1:.*RuntimeError: out of memory"),
        (668, r"a process died.*rte with seed 668"),
    ],
)
def test_a_part_that_fails_is_told_with_its_last_words(cell, seed, words):
    with pytest.raises(OSError, match=words):
        run(dataclasses.replace(cell, seeds=(seed,)))
    assert not Path("run", FINETUNED, "run.json").exists()


def test_models_that_cannot_be_tried_are_told_with_their_task(cell):
    with pytest.raises(OSError, match=r"(?s)trying the models of rte ended with 1:.*no such noise"):
        run(dataclasses.replace(cell, robust={"rte": ["no_such_noise"]}))


def test_a_command_that_fails_ends_the_cell(cell):
    Path("no_way").touch()
    with pytest.raises(subprocess.CalledProcessError):
        run(cell)
    assert Path("commands.jsonl").read_text().count("\n") == 1


def fail_at_work(cell):
    with _Processes(cell, "stand_in") as processes:
        processes.pool.submit(time.sleep, 60)
        raise OSError("no such luck")


def test_a_cell_that_fails_ends_its_own_processes_and_no_others(cell):
    before = multiprocessing.active_children()  # loaders of other tests may not have ended yet
    bystander = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    bystander.start()
    try:
        began = time.monotonic()
        with pytest.raises(OSError, match="no such luck"):
            fail_at_work(cell)
        assert time.monotonic() - began < 50, "those at work are not waited for"
        assert set(multiprocessing.active_children()) - {*before, bystander} == set()
        assert bystander.is_alive()
    finally:
        bystander.kill()
        bystander.join()


def test_a_wrong_file_is_told(tmp_path, capsys):
    (tmp_path / "cell.yaml").write_text("output: run\ntasks: {}\nseeds: [0]\nsidebyside: 1\n")
    assert main([str(tmp_path / "cell.yaml")]) == 1
    assert "unknown key 'sidebyside'" in capsys.readouterr().err


def test_arguments_of_robust():
    plan = Plan(noises=["keyboard"], severities=(1, 3), seeds=[0], domains=["imdb", "hans", "yelp"], limit=7)
    assert " ".join(robust_arguments(plan, "sst2")) == (
        "--noise keyboard, --severity 1,3 --seeds 0, --domains imdb,yelp, --examples 7"
    )
    assert "--domains none" in " ".join(robust_arguments(plan, "cola"))
    nothing = Plan(noises=[], severities=(1,), seeds=[0, 1], domains=[])
    assert " ".join(robust_arguments(nothing, "sst2")) == "--noise none --severity 1 --seeds 0,1, --domains none"
