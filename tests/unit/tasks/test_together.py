"""Models trained together become what they become alone."""

import dataclasses

import pytest
import torch
from finetuning_helpers import make_model, make_questions, make_rows, make_task
from torch.testing import assert_close

from sharedqkv.data.tokenizer import load_tokenizer
from sharedqkv.tasks import finetune as finetuning
from sharedqkv.tasks.finetune import finetune
from sharedqkv.tasks.glue import GLUE
from sharedqkv.tasks.label_noise import with_label_noise
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.tasks.squad import SQUAD
from sharedqkv.tasks.together import Stack, train_together
from sharedqkv.tasks.training import build_model, train

# 11 rows in batches of 4: the last one of a pass is smaller, and the last pass is cut in its middle.
RECIPE = FinetuneRecipe(
    max_length=32, stride=4, max_question_length=10, epochs=2.3, batch_size=4, learning_rate=1e-3, dropout=0.0
)
SEEDS = (0, 3, 5)
HAS_GPU = torch.cuda.is_available()
NEAR = {"atol": 2e-4, "rtol": 1e-3} if HAS_GPU else {"atol": 1e-5, "rtol": 1e-5}
"""A GPU takes other kernels for other shapes, and Adam makes much of a rounded gradient."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"))


def features_of(task, folder, seed=0, noise=0.0):
    examples = task.examples(make_rows(task.name, 11), "")
    return task.features(
        with_label_noise(task, examples, noise, seed), load_tokenizer(str(folder)), RECIPE, training=True
    )


def compare(folder, task, recipe, features):
    """Train alone and together; the losses are returned, weights must be the same but for rounding."""
    models = [build_model(task, folder, recipe, seed) for seed in SEEDS]
    figures = train_together(models, features, recipe, SEEDS, 0, "together")
    for model, own, mine, seed in zip(models, features, figures, SEEDS, strict=True):
        alone = build_model(task, folder, recipe, seed)
        expected = train(alone, own, recipe, seed, 0, "alone")
        assert mine["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-3 if HAS_GPU else 1e-5)
        assert mine["steps"] == expected["steps"]
        for (name, parameter), trained in zip(model.named_parameters(), alone.parameters(), strict=True):
            if name != "qa_outputs.bias":  # it moves all logits alike: its gradient is rounding
                assert_close(parameter, trained.cpu(), **NEAR, msg=lambda text, name=name: f"{name}: {text}")
    return [mine["train_loss"] for mine in figures]


@pytest.mark.parametrize("name", ["cola", "mnli", "stsb"])
def test_each_becomes_what_it_becomes_alone(folder, name):
    losses = compare(folder, GLUE[name], RECIPE, [features_of(GLUE[name], folder)] * 3)
    assert len(set(losses)) == 3, "seeds have heads and orders of their own"


@pytest.mark.parametrize("padded", [False, True])
def test_each_becomes_what_it_becomes_alone_on_squad(folder, padded):
    """Its loss goes over the padding too, so that all rows must be padded alike here."""
    examples = SQUAD["squad"].examples(make_questions(60), "")
    features = SQUAD["squad"].features(examples, load_tokenizer(str(folder)), RECIPE, training=True)
    by_length = {}
    for row in features.inputs:
        by_length.setdefault(len(row["input_ids"]), []).append(row)
    alike = max((rows for length, rows in by_length.items() if bool(length % 8) == padded), key=len)
    assert len(alike) > 4
    compare(folder, SQUAD["squad"], RECIPE, [dataclasses.replace(features, inputs=alike)] * 3)


def test_with_bf16_and_rows_of_any_length(folder):
    recipe = dataclasses.replace(RECIPE, bf16=True, max_length=13)
    task, tokenizer = GLUE["mnli"], load_tokenizer(str(folder))
    features = task.features(task.examples(make_rows("mnli", 11), ""), tokenizer, recipe, training=True)
    models = [build_model(task, folder, recipe, seed) for seed in SEEDS]
    together = train_together(models, [features] * 3, recipe, SEEDS, 0, "together")
    alone = [train(build_model(task, folder, recipe, seed), features, recipe, seed, 0, "alone") for seed in SEEDS]
    assert [mine["train_loss"] for mine in together] == pytest.approx([one["train_loss"] for one in alone], rel=1e-3)


@pytest.mark.parametrize("positions", ["rotary", "absolute"])
def test_for_every_kind_of_attention(tmp_path, variant, positions):
    folder = make_model(tmp_path, variant, position_embedding_type=positions)
    compare(folder, GLUE["cola"], RECIPE, [features_of(GLUE["cola"], folder)] * 3)


@pytest.mark.parametrize("max_grad_norm", [0.0, 0.01])
def test_gradients_are_clipped_by_the_norm_of_their_own_model(folder, max_grad_norm):
    recipe = dataclasses.replace(RECIPE, max_grad_norm=max_grad_norm)
    compare(folder, GLUE["cola"], recipe, [features_of(GLUE["cola"], folder)] * 3)


def test_clipping_one_leaves_the_others(folder):
    stack = Stack([build_model(GLUE["cola"], folder, RECIPE, seed) for seed in (0, 1)])
    for parameter in stack.parameters_K:
        parameter.grad = torch.ones_like(parameter)
        parameter.grad[1] *= 1e-6
    stack._clip(0.5)
    norms = [sum(float(p.grad[k].square().sum()) for p in stack.parameters_K) ** 0.5 for k in (0, 1)]
    assert norms[0] == pytest.approx(0.5, rel=1e-4)
    assert all(torch.equal(p.grad[1], torch.full_like(p.grad[1], 1e-6)) for p in stack.parameters_K)


def test_each_has_its_own_wrong_labels(folder):
    compare(folder, GLUE["cola"], RECIPE, [features_of(GLUE["cola"], folder, seed, noise=0.5) for seed in SEEDS])


def test_dropout_differs_between_models_and_is_reproducible(folder):
    recipe, features = dataclasses.replace(RECIPE, dropout=0.4), features_of(GLUE["cola"], folder)

    def trained():
        models = [build_model(GLUE["cola"], folder, recipe, 0) for _ in range(2)]
        losses = [mine["train_loss"] for mine in train_together(models, [features] * 2, recipe, (0, 0), 0, "test")]
        return losses, models[0].classifier.weight.detach()

    losses, weight = trained()
    again, same_weight = trained()
    assert losses[0] != losses[1]
    assert losses == again
    assert torch.equal(weight, same_weight)


def test_the_models_are_not_on_the_device_beside_their_stack(folder, monkeypatch):
    models = [build_model(GLUE["cola"], folder, RECIPE, seed) for seed in SEEDS]
    before = [model.classifier.weight.detach().clone() for model in models]
    for model in models:
        monkeypatch.setattr(model, "to", lambda *_: pytest.fail("it would take memory that the stack needs"))
    train_together(models, [features_of(GLUE["cola"], folder)] * 3, RECIPE, SEEDS, 0, "test")
    assert {parameter.device.type for model in models for parameter in model.parameters()} == {"cpu"}
    for model, weight in zip(models, before, strict=True):
        assert not torch.equal(model.classifier.weight, weight), "it is handed back what it became"


def test_a_stack_computes_with_nothing_that_is_left_elsewhere(tmp_path, variant):
    models = [build_model(GLUE["cola"], make_model(tmp_path, variant), RECIPE, seed) for seed in SEEDS]
    for model in models:
        model.register_buffer("scale", torch.ones(1), persistent=False)
    stack = Stack(models, torch.device("meta"))
    assert all(tensor.is_meta for tensor in [*stack.parameters_K, *stack.own_buffers.values()])
    ids_KBL = torch.ones(3, 2, 8, dtype=torch.long, device="meta")
    labels_KB = torch.zeros(3, 2, dtype=torch.long, device="meta")
    batch = {"input_ids": ids_KBL, "attention_mask": ids_KBL.bool(), "labels": labels_KB}
    assert stack(batch).is_meta
    assert not any(parameter.is_meta for model in models for parameter in model.parameters())


@pytest.mark.skipif(not HAS_GPU, reason="shows what real CUDA graphs do: needs a GPU")
@pytest.mark.parametrize("settings", [{}, {"tf32": True}, {"bf16": True}])
def test_with_graphs_they_are_trained_as_without(folder, settings):
    features = features_of(GLUE["cola"], folder)

    def losses(**more):
        recipe = dataclasses.replace(RECIPE, **settings, **more)
        models = [build_model(GLUE["cola"], folder, recipe, seed) for seed in SEEDS]
        return [mine["train_loss"] for mine in train_together(models, [features] * 3, recipe, SEEDS, 0, "test")]

    assert losses(cuda_graphs=True) == pytest.approx(losses(), rel=1e-3)


@pytest.fixture
def data(tmp_path):
    return str(make_task(tmp_path / "data", "cola"))


def run(folder, data, output, seeds=3, **settings):
    recipe = FinetuneRecipe(max_length=24, epochs=1, batch_size=4, dropout=0.0, **settings)
    return finetune(str(folder), {"cola": recipe}, range(seeds), str(output), data)


def test_a_run_with_seeds_together_scores_as_one_with_seeds_alone(folder, data, tmp_path):
    together = run(folder, data, tmp_path / "together", seeds_at_once=2)
    alone = run(folder, data, tmp_path / "alone")
    assert [record["train"].get("together_with_seeds") for record in together.records] == [[0, 1], [0, 1], None]
    for one, other in zip(together.records, alone.records, strict=True):
        assert one["splits"] == {
            name: {**split, "predictions_sha256": one["splits"][name]["predictions_sha256"]}
            for name, split in other["splits"].items()
        }
        assert one["train"]["train_loss"] == pytest.approx(other["train"]["train_loss"], rel=1e-4)
    again = run(folder, data, tmp_path / "together", seeds_at_once=2)
    assert again.skipped == 3
    assert [record["seed"] for record in again.records] == [0, 1, 2]


def test_seeds_that_are_missing_are_put_among_those_that_are_done(folder, data, tmp_path):
    first = run(folder, data, tmp_path / "run", seeds_at_once=2)
    (tmp_path / "run" / "cells" / "cola" / "0.json").unlink()
    again = run(folder, data, tmp_path / "run", seeds_at_once=2)
    assert again.skipped == 2
    assert [record["seed"] for record in again.records] == [record["seed"] for record in first.records]


def test_one_that_diverges_does_not_break_the_others(folder, data, tmp_path, monkeypatch):
    def spoilt(task, model_folder, recipe, seed):
        model = build_model(task, model_folder, recipe, seed)
        if seed == 1:
            torch.nn.init.constant_(model.classifier.weight, float("nan"))
        return model

    monkeypatch.setattr(finetuning, "build_model", spoilt)
    outcome = run(folder, data, tmp_path / "run", seeds_at_once=3)
    assert [record["seed"] for record in outcome.records] == [0, 2]
    assert list(outcome.broken) == ["cola, seed 1"]
    assert "the loss became nan: lower learning_rate" in outcome.broken["cola, seed 1"]


def test_a_training_that_breaks_is_told_for_each_of_its_seeds(folder, data, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(finetuning, "train_together", fail)
    outcome = run(folder, data, tmp_path / "run", seeds_at_once=2)
    assert set(outcome.broken) == {"cola, seed 0", "cola, seed 1"}
    assert [record["seed"] for record in outcome.records] == [2]
