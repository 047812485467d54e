"""A tiny study in sittings, with commands that only pretend to train."""

import json
import sys
from pathlib import Path

import pytest

from sharedqkv.models import SharedQKVConfig
from sharedqkv.study.sittings import Cell, Records, Sitting, load_plan
from sharedqkv.study.sittings.sitting import Commands
from sharedqkv.tasks.registry import get_task

STUDY = """\
title: A tiny study
variants: [standard, shared]
positions: [rotary, absolute]
seeds: 2
corpus: {world: 20, train_vocab_size: 300, length: 32}
pretrain: {recipe: tiny_cpu, max_tokens: 4000, warmup: 0.1}
"""
PLAN = """\
study: study.yaml
search: {learning_rates: [1.0e-3, 2.0e-3], max_tokens: 1000, position: rotary}
order:
  - {variants: [standard, shared], positions: [rotary], seeds: [0]}
  - {variants: [shared], positions: [rotary, absolute], seeds: [1]}
"""
CHECKS = """\
  - {variants: [standard], positions: [rotary], seeds: [0], learning_rates: [1.0e-3, 2.0e-3]}
  - {variants: [standard], positions: [rotary], seeds: [0], max_tokens: [2000, 3000]}
"""
"""Further groups of the order."""
TASKS = """\
finetune: {tasks: [acceptability, sst2], data: ., seeds: [3, 5], epochs: 4, search: {learning_rate: [1.0e-5, 1.0e-4]}}
robust: {noise: keyboard, severity: [1, 5]}
"""
"""What the study has besides when its cells go on to tasks."""
PRETEND = """\
# Stands for `sharedqkv pretrain RECIPE`: writes what a run leaves, with the loss its rate is meant to have.
import json, os, sys, time
from pathlib import Path
import yaml
time.sleep(0.3)  # recipes of cells side by side must not overwrite each other before they are read
recipe = yaml.safe_load(open(sys.argv[1]))
if recipe["attention_variant"] == "shared" and recipe["seed"] == 1:
    sys.exit("error: no luck")
run = Path(recipe["output"])
loss = 2.0 if recipe["learning_rate"] == 2e-3 else 3.0
(run / "metrics.jsonl").write_text(json.dumps({"step": 1, "tokens": 1, "loss": loss, "seconds": 1}) + "\\n")
(run / "model").mkdir()
(run / "model" / "config.json").write_text(CONFIG)
(run / "model" / "model.safetensors").write_bytes(b"weights")
(run / "run.json").write_text(json.dumps({"state": "done", "recipe": recipe, "eval_loss": loss}))
assert os.environ["CUDA_MPS_CLIENT_PRIORITY"] == "1"
"""


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "plan.yaml").write_text(PLAN)
    return load_plan(tmp_path / "plan.yaml")


@pytest.fixture
def plan_with_tasks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for task in map(get_task, ("acceptability", "sst2")):
        for split in (task.train, *task.validation):
            file = tmp_path / split.config / f"{split.name}.jsonl"
            file.parent.mkdir(exist_ok=True)
            file.touch()
    (tmp_path / "study.yaml").write_text(STUDY + TASKS)
    (tmp_path / "plan.yaml").write_text(PLAN + "tasks: {sst2: {epochs: 2, search: {}}}\n")
    return load_plan(tmp_path / "plan.yaml")


@pytest.fixture
def plan_with_checks(plan, tmp_path):
    (tmp_path / "plan.yaml").write_text(PLAN + CHECKS)
    return load_plan(tmp_path / "plan.yaml")


@pytest.fixture
def records(plan, tmp_path):
    return Records(plan, tmp_path / "records")


@pytest.fixture
def add_search_run():
    def add(records, variant, rate, losses, state="done", error=None):
        cell = Cell(variant, "rotary", tried_rate=rate)
        run = records.run(cell)
        recipe = json.loads(json.dumps(records.plan.recipe(cell, rate, Path("c"), Path("r")).to_dict()))
        run.create({"recipe": recipe})
        for step, loss in enumerate(losses, 1):
            run.append_metrics({"step": step, "tokens": step, "loss": loss})
        run.set_state(state, error=error)

    return add


@pytest.fixture
def sitting(records, tmp_path, monkeypatch):
    monkeypatch.setattr("sharedqkv.study.sittings.sitting.APART_S", 0.0)  # cells here take no time

    def make(seconds=300.0, side_by_side=1, records=records, **options):
        corpus = tmp_path / "corpus"
        corpus.mkdir(exist_ok=True)
        (corpus / "manifest.json").write_text('{"length": 32}')
        config = json.dumps(SharedQKVConfig.from_size("tiny").to_dict())
        script = tmp_path / "pretend.py"
        script.write_text(PRETEND.replace("CONFIG", repr(config)))
        said = []
        made = Sitting(
            records, corpus, tmp_path / "work", seconds, side_by_side, tmp_path / "records.tar.xz", **options
        )
        made.say, made.commands, made.said = said.append, Commands((sys.executable, str(script))), said
        return made

    return make
