"""The shipped studies: each runs to its report when shrunk, and those for GPUs are large enough to find something."""

import json

import pytest
import yaml

import sharedqkv_console
from sharedqkv.evidence.report.questions import RIVALS
from sharedqkv.evidence.statistics import smallest_p
from sharedqkv.study.plan import load_study
from sharedqkv.study.shipped import SHIPPED, shipped_studies

TINY_MODEL = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
TINY_RUN = {"rows_per_step": 4, "rows_per_device": 4, "max_steps": 2, "logging_steps": 2, "eval_steps": 2,
            "save_steps": 2, "eval_rows": 4, "bf16": False, "compile": False, "workers": 0}  # fmt: skip
TINY_WORLD = {"world": 40, "train": 16, "validation": 8, "out_of_domain": 8, "train_vocab_size": 300, "length": 32}


def shrunk(name: str) -> dict:
    """The same variants, positions, stages, recipe, noises and layout; little text, tiny models, two steps."""
    values = yaml.safe_load((SHIPPED / f"{name}.yaml").read_text(encoding="utf-8"))
    values["seeds"] = 1
    values["corpus"] = TINY_WORLD | {key: values["corpus"][key] for key in ("layout",) if key in values["corpus"]}
    values["pretrain"] = values["pretrain"] | TINY_RUN | {"model": TINY_MODEL}
    values["pretrain"].pop("max_tokens", None)
    tiny_tasks = {"tasks": ["sentiment", "span_qa"], "seeds": 1, "epochs": 1, "batch_size": 8, "max_length": 64}
    values["finetune"] |= tiny_tasks | {"stride": 8, "max_question_length": 24, "bf16": False}
    values["robust"] |= {"severity": [3], "examples": 4}
    if values["robust"]["domains"] != "all":
        values["robust"]["domains"] = ["sentiment_out_of_domain"]
    values["bench"] = {"rows": 2, "length": 16, "repeats": 2}
    return values


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name != "paper_base" else []) for name in shipped_studies()]
)
def test_it_runs_to_its_report_when_shrunk(name, tmp_path, capsys):
    path = tmp_path / f"tiny_{name}.yaml"
    path.write_text(yaml.safe_dump(shrunk(name)), encoding="utf-8")
    code = sharedqkv_console.main(["study", str(path), "--output", str(tmp_path / "out"), "--jobs", "1"])
    assert code == 0, capsys.readouterr().err
    study = json.loads((tmp_path / "out" / "study.json").read_text())
    stages = {cell.split("/")[0] for cell in study["cells"]}
    assert stages == {"prepare", "pretrain", "finetune", "robust", "maps", "bench"}
    entrants = [entrant.name for entrant in load_study(name).entrants]
    assert [entrant["name"] for entrant in study["entrants"]] == entrants
    page = (tmp_path / "out" / "report" / "report.md").read_text()
    assert all(entrant in page for entrant in entrants)


@pytest.mark.parametrize("name", shipped_studies())
def test_it_can_be_planned_without_any_data(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert sharedqkv_console.main(["study", name, "--dry-run"]) == 0
    listed = capsys.readouterr().out
    assert f"pretrain/shared{'-absolute' if name == 'controls' else ''}/0: " in listed
    assert "cells to run" in listed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [name for name in shipped_studies() if name != "quick"])
def test_its_seeds_suffice_for_a_verdict_on_every_average(name):
    """`shared` against the baseline alone, and all other averages together: no family of the report is larger."""
    study = load_study(name)
    seeds, others = len(study.seeds), len(study.entrants) - 2
    assert smallest_p(seeds, seeds, paired=False) * (others + len(RIVALS)) <= 0.05
