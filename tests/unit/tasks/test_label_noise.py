"""Wrong labels: so many as asked, never the right one, the same for all models."""

import collections

import pytest
from finetuning_helpers import make_model, make_rows, make_task, predictions, run_here

from sharedqkv.tasks.glue import GLUE
from sharedqkv.tasks.label_noise import with_label_noise
from sharedqkv.tasks.squad import SQUAD


def examples(task: str, count: int = 300):
    return GLUE[task].examples(make_rows(task, count), "made up")


@pytest.mark.parametrize("task", ["cola", "mnli"])
def test_a_share_gets_another_class(task):
    clean = examples(task)
    noisy = with_label_noise(GLUE[task], clean, 0.3, seed=1)
    changed = [(a.label, b.label) for a, b in zip(clean, noisy, strict=True) if a.label != b.label]
    assert len(changed) == 90
    assert [a.texts for a in clean] == [b.texts for b in noisy]
    others = collections.Counter((after - before) % len(GLUE[task].labels) for before, after in changed)
    assert len(others) == len(GLUE[task].labels) - 1  # all wrong classes occur
    assert min(others.values()) > 25


def test_numbers_are_exchanged():
    clean = examples("stsb")
    noisy = with_label_noise(GLUE["stsb"], clean, 0.5, seed=1)
    labels, noisy_labels = ([example.label for example in some] for some in (clean, noisy))
    assert sorted(labels) == sorted(noisy_labels)
    assert labels != noisy_labels


def test_the_seed_decides():
    clean = examples("cola")
    assert with_label_noise(GLUE["cola"], clean, 0.2, 1) == with_label_noise(GLUE["cola"], clean, 0.2, 1)
    assert with_label_noise(GLUE["cola"], clean, 0.2, 1) != with_label_noise(GLUE["cola"], clean, 0.2, 2)
    assert with_label_noise(GLUE["cola"], clean, 0, 1) == clean


def test_answers_take_none():
    with pytest.raises(ValueError, match="squad: label_noise is for classes and numbers"):
        with_label_noise(SQUAD["squad"], [], 0.1, 0)


def test_it_changes_what_is_learned_but_not_what_is_scored(tmp_path):
    data, model = make_task(tmp_path / "data", "cola", train=48), make_model(tmp_path / "model")
    for name, share in (("clean", 0.0), ("noisy", 0.4)):
        assert run_here(model, data, tmp_path / name, seeds="1", epochs=3, label_noise=share) == 0
    clean, noisy = (predictions(tmp_path / name)["predictions/cola/validation/0.jsonl"] for name in ("clean", "noisy"))
    assert clean != noisy
    assert [line.split('"label": ')[1][:1] for line in clean.splitlines()] == [
        line.split('"label": ')[1][:1] for line in noisy.splitlines()
    ]
