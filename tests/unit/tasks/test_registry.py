"""Tasks are found by name; those of third parties too."""

from importlib.metadata import EntryPoint

import pytest
from finetuning_helpers import make_model, make_rows, run_here, write_jsonl

from sharedqkv import plugins
from sharedqkv.tasks import registry
from sharedqkv.tasks.glue import GLUE, GlueTask
from sharedqkv.tasks.metrics import accuracy
from sharedqkv.tasks.task import Split

SPAM = GlueTask("spam", ("sentence",), ("ham", "spam"), (accuracy,), (Split("spam", "validation", scored_as="spam"),))


@pytest.fixture(autouse=True)
def fresh_registry(monkeypatch):
    monkeypatch.setattr(registry, "TASKS", dict(registry.TASKS))
    monkeypatch.setattr(plugins, "_left_out", {})


def test_an_unknown_task_names_its_like():
    with pytest.raises(ValueError, match=r"unknown task 'sst'. Did you mean 'sst2'\? Known: cola, "):
        registry.get_task("sst")


def test_a_name_is_given_once():
    registry.register_task(SPAM)
    registry.register_task(SPAM)
    with pytest.raises(ValueError, match="another task 'spam'"):
        registry.register_task(GlueTask("spam", ("text",), (), (accuracy,), ()))
    with pytest.raises(ValueError, match="must be a Python identifier"):
        registry.register_task(GlueTask("../spam", ("text",), (), (accuracy,), ()))


def test_entry_points_are_found_when_a_name_is_unknown(monkeypatch):
    class Found(EntryPoint):
        def load(self):
            return registry.register_task(SPAM)

    monkeypatch.setattr(plugins, "entry_points", lambda group: [Found("spam", "some.module", group)])
    assert registry.get_task("spam") is SPAM
    assert "spam" in registry.task_names()


def test_a_task_of_ones_own_is_fine_tuned_on_and_needs_a_folder(tmp_path, capsys):
    registry.register_task(SPAM)
    rows = make_rows("cola", 24)
    for split in ("train", "validation"):
        write_jsonl(tmp_path / "data" / "spam" / f"{split}.jsonl", rows)
    model = make_model(tmp_path / "model")
    assert run_here(model, tmp_path / "data", tmp_path / "run", tasks="spam") == 0
    assert "spam" in capsys.readouterr().out
    assert run_here(model, None, tmp_path / "hub", tasks="spam") == 1
    assert "spam is not on the hub: give the folder with its rows as --data" in capsys.readouterr().err


def test_every_task_is_listed_under_its_own_name():
    assert all(task.name == name for name, task in registry.TASKS.items())
    assert list(registry.TASKS)[: len(GLUE)] == list(GLUE)
