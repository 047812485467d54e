"""The stages of a whole cell: which commands are given, what is put together, what a failure leaves."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from sharedqkv.robustness.grid import Plan
from sharedqkv.study.sittings.whole_cell import FINETUNED, SECONDS, WholeCell, main, robust_arguments, run_whole_cell
from sharedqkv.tasks.cells import kept_cells
from sharedqkv.tasks.recipe import FinetuneRecipe

CONSOLE = """\
# Stands for `sharedqkv`: notes its arguments, and leaves what `finetune` leaves.
import json, sys
from pathlib import Path
import yaml
with open("commands.jsonl", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "finetune":
    given = dict(zip(sys.argv[2::2], sys.argv[3::2]))
    run, task, seed = Path(given["--output"]), given["--tasks"], given["--seeds"].rstrip(",")
    if (task, seed) == ("rte", "666"):
        sys.exit("error: no such luck")
    recipe = yaml.safe_load(open(given["--recipe"]))
    if recipe["search"]:
        recipe |= {"learning_rate": recipe["search"]["learning_rate"][-1], "search": {}}
        (run / "search").mkdir()
        (run / "search" / f"{task}.json").write_text("{}")
    for folder in (run / "cells" / task, run / "predictions" / task / "validation", run / "models" / task / seed):
        folder.mkdir(parents=True)
    metrics = {"score": recipe["learning_rate"]}
    splits = {f"{task}/validation": {"scored_as": task, "metrics": metrics}}
    record = {"recipe": recipe, "task": task, "seed": int(seed), "splits": splits}
    (run / "cells" / task / f"{seed}.json").write_text(json.dumps(record))
    (run / "predictions" / task / "validation" / f"{seed}.jsonl").write_text("")
    (run / "models" / task / seed / "weights").write_text(seed)
    info = {"kind": "finetune", "state": "done", "sittings": [{"command": sys.argv}], "scores": {}}
    (run / "run.json").write_text(json.dumps(info))
"""


@pytest.fixture
def cell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "console.py").write_text(CONSOLE)
    (tmp_path / "run").mkdir()
    recipes = {
        "cola": FinetuneRecipe(search={"learning_rate": [1e-5, 3e-5]}),
        "rte": FinetuneRecipe(learning_rate=2e-5),
    }
    tasks = {task: recipe.to_dict() for task, recipe in recipes.items()}
    return WholeCell("run", tasks, seeds=(0, 1, 2), side_by_side=2, data="data", robust=("--noise", "keyboard,"))


def run(cell):
    run_whole_cell(cell, (sys.executable, "console.py"))
    return [json.loads(line) for line in Path("commands.jsonl").read_text().splitlines()]


def test_stages_come_one_after_another(cell):
    commands = run(cell)
    assert commands[0] == ["pretrain", "run/recipe.yaml"]
    assert [command[0] for command in commands[1:-1]] == ["finetune"] * 6
    assert commands[-1] == [
        "robust", "run/finetune", "--noise", "keyboard,", "--data", "data", "--output", "run/robust_report",
    ]  # fmt: skip
    assert list(json.loads(Path("run", SECONDS).read_text())) == ["pretrain", "finetune", "robust"]


def test_the_parts_become_one_run(cell):
    run(cell)
    whole = Path("run", FINETUNED)
    assert [(kept.task, kept.seed) for kept in kept_cells(whole)] == [(t, s) for t in ("cola", "rte") for s in range(3)]
    assert sorted(path.read_text() for path in whole.glob("models/cola/*/weights")) == ["0", "1", "2"]
    assert (whole / "search" / "cola.json").exists()
    info = json.loads((whole / "run.json").read_text())
    assert info["scores"]["cola"]["seeds"] == [0, 1, 2]
    assert len(info["sittings"]) == 6
    assert not Path("run", "parts").exists()


def test_one_seed_searches_and_the_others_take_what_it_found(cell):
    run(cell)
    info = json.loads(Path("run", FINETUNED, "run.json").read_text())
    assert info["scores"]["cola"]["metrics"]["score"] == {"mean": pytest.approx(3e-5), "std": pytest.approx(0)}
    assert info["scores"]["rte"]["metrics"]["score"]["mean"] == pytest.approx(2e-5)
    assert len(list(Path("run", FINETUNED, "search").iterdir())) == 1


def test_models_are_kept_only_for_a_stage_that_needs_them(cell):
    commands = run(dataclasses.replace(cell, robust=()))
    assert not any("--keep-models" in command for command in commands)
    assert {command[0] for command in commands} == {"pretrain", "finetune"}


def test_a_part_that_fails_is_told_with_its_last_words(cell):
    with pytest.raises(OSError, match=r"fine-tuning on rte with seed 666 ended with 1:\n.*no such luck"):
        run(dataclasses.replace(cell, seeds=(666,)))
    assert not Path("run", FINETUNED, "run.json").exists()


def test_a_command_that_fails_ends_the_cell(cell):
    with pytest.raises(subprocess.CalledProcessError):
        run_whole_cell(cell, (sys.executable, "-c", "import sys; sys.exit(3)"))


def test_a_wrong_file_is_told(tmp_path, capsys):
    (tmp_path / "cell.yaml").write_text("output: run\ntasks: {}\nseeds: [0]\nsidebyside: 1\n")
    assert main([str(tmp_path / "cell.yaml")]) == 1
    assert "unknown key 'sidebyside'" in capsys.readouterr().err


def test_arguments_of_robust():
    plan = Plan(noises=["keyboard"], severities=(1, 3), seeds=[0], domains=["imdb", "hans", "yelp"], limit=7)
    assert " ".join(robust_arguments(plan, ["sst2", "cola"])) == (
        "--noise keyboard, --severity 1,3 --seeds 0, --domains imdb,yelp, --examples 7"
    )
    nothing = Plan(noises=[], severities=(1,), seeds=[0, 1], domains=[])
    assert " ".join(robust_arguments(nothing, ["sst2"])) == "--noise none --severity 1 --seeds 0,1, --domains none"
