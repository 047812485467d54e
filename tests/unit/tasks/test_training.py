"""One fine-tuned model: new heads, padding, the order of the data, and outputs in the order of the inputs."""

import numpy as np
import pytest
import torch
from finetuning_helpers import make_model, make_rows

from sharedqkv import SharedQKVForSequenceClassification
from sharedqkv.data.tokenizer import load_tokenizer
from sharedqkv.tasks.glue import GLUE
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.tasks.squad import SQUAD
from sharedqkv.tasks.training import Collator, FinetuneTrainer, build_model, deterministic, outputs_of, train

RECIPE = FinetuneRecipe(max_length=24, epochs=1, batch_size=4, learning_rate=1e-3, eval_batch_size=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"))


def features_of(folder, task="cola", count=10, training=True):
    examples = GLUE[task].examples(make_rows(task, count), "")
    return GLUE[task].features(examples, load_tokenizer(str(folder)), RECIPE, training=training)


def test_the_encoder_is_loaded_and_the_head_is_new_for_each_seed(folder):
    one, same, other = (build_model(GLUE["mnli"], folder, RECIPE, seed) for seed in (0, 0, 1))
    embeddings = [model.bert.embeddings.word_embeddings.weight for model in (one, other)]
    assert torch.equal(*embeddings)
    assert torch.equal(one.classifier.weight, same.classifier.weight)
    assert not torch.equal(one.classifier.weight, other.classifier.weight)
    assert one.classifier.out_features == 3
    assert one.config.id2label[2] == "contradiction"


def test_a_head_of_the_checkpoint_is_not_used(folder, tmp_path):
    tuned = build_model(GLUE["mnli"], folder, RECIPE, 0)
    tuned.save_pretrained(tmp_path)
    fresh = build_model(GLUE["mnli"], tmp_path, RECIPE, 1)
    assert torch.equal(fresh.bert.encoder.layer[0].output.dense.weight, tuned.bert.encoder.layer[0].output.dense.weight)
    assert not torch.equal(fresh.classifier.weight, tuned.classifier.weight)
    assert build_model(GLUE["cola"], tmp_path, RECIPE, 1).classifier.out_features == 2


def test_a_new_head_survives_saving(folder, tmp_path):
    for task in (GLUE["stsb"], SQUAD["squad"]):
        model = build_model(task, folder, RECIPE, 0)
        model.save_pretrained(tmp_path / task.name)
        again, info = type(model).from_pretrained(tmp_path / task.name, output_loading_info=True)
        assert not any(info.values()), info
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_dropout_can_be_set(folder):
    assert build_model(GLUE["cola"], folder, FinetuneRecipe(dropout=0.3), 0).dropout.p == 0.3
    assert build_model(GLUE["cola"], folder, FinetuneRecipe(), 0).dropout.p == 0.1


@pytest.mark.parametrize(("max_length", "width"), [(24, 8), (21, 5)])
def test_rows_are_padded_to_a_width_the_model_can_take(max_length, width):
    rows = [{"input_ids": [7] * n, "token_type_ids": [1] * n, "labels": float(n)} for n in (5, 2)]
    batch = Collator(9, max_length)(rows)
    assert batch["input_ids"].shape == (2, width)
    assert batch["input_ids"][1].tolist() == [7, 7] + [9] * (width - 2)
    assert batch["attention_mask"].sum(dim=1).tolist() == [5, 2]
    assert batch["token_type_ids"][1].sum() == 2
    assert batch["labels"].tolist() == [5.0, 2.0]
    assert batch["labels"].is_floating_point()


def test_the_order_of_the_data_hangs_on_the_seed_alone(folder, tmp_path):
    from transformers import TrainingArguments

    rows = features_of(folder, count=40).inputs

    def order(seed, noise):
        torch.manual_seed(noise)
        args = TrainingArguments(tmp_path, seed=seed, use_cpu=True, per_device_train_batch_size=4, report_to=[])
        trainer = FinetuneTrainer(build_model(GLUE["cola"], folder, RECIPE, 0), args, train_dataset=rows)
        torch.manual_seed(noise)
        sampler = trainer._get_train_sampler()
        return [list(sampler), list(sampler)]

    first, second = order(seed=3, noise=0)
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second
    assert order(seed=3, noise=1) == [first, second]
    assert order(seed=4, noise=0) != [first, second]


def test_training_learns_and_is_deterministic(folder):
    features = features_of(folder, count=32)
    recipe = FinetuneRecipe(max_length=24, epochs=12, batch_size=8, learning_rate=5e-3)

    def trained(seed):
        model = build_model(GLUE["cola"], folder, recipe, seed)
        figures = train(model, features, recipe, seed, 0, "test")
        return figures, outputs_of(model, features, recipe, 0)

    figures, outputs = trained(0)
    assert figures["steps"] == 48
    predicted = [int(logits.argmax()) for logits in outputs]
    assert np.mean([guess == row["labels"] for guess, row in zip(predicted, features.inputs, strict=True)]) > 0.9
    again = trained(0)[1]
    assert all(np.array_equal(a, b) for a, b in zip(outputs, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(outputs, trained(1)[1], strict=True))


def test_a_diverged_training_is_an_error(folder):
    recipe = FinetuneRecipe(max_length=24, epochs=3, learning_rate=1e30, warmup=0, max_grad_norm=0)
    model = build_model(GLUE["stsb"], folder, recipe, 0)
    with pytest.raises(ValueError, match=r"the loss became|outputs hold NaN"):
        train(model, features_of(folder, "stsb", 40), recipe, 0, 0, "test")


def test_outputs_that_are_no_numbers_are_an_error(folder):
    model = build_model(GLUE["cola"], folder, RECIPE, 0)
    torch.nn.init.constant_(model.classifier.weight, float("nan"))
    with pytest.raises(ValueError, match="NaN or infinity"):
        outputs_of(model, features_of(folder), RECIPE, 0)


def test_outputs_come_in_the_order_of_the_inputs(folder):
    features = features_of(folder, training=False)
    model: SharedQKVForSequenceClassification = build_model(GLUE["cola"], folder, RECIPE, 0)
    outputs, names = outputs_of(model, features, RECIPE, 0), ("input_ids", "token_type_ids")
    for row, output in zip(features.inputs, outputs, strict=True):
        alone = model(**{name: torch.tensor([row[name]], device=model.device) for name in names}).logits
        assert output == pytest.approx(alone[0].tolist(), abs=1e-5)


def test_determinism_is_switched_back():
    with deterministic():
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def test_training_uses_tf32_on_a_gpu_only_and_switches_it_off(folder):
    torch.set_float32_matmul_precision("highest")
    recipe = FinetuneRecipe(max_length=24, epochs=1, batch_size=8, tf32=True)
    model = build_model(GLUE["cola"], folder, recipe, 0)
    seen = set()

    def look_and_fail(*_):
        seen.add(torch.backends.cuda.matmul.fp32_precision)
        raise RuntimeError("out of memory")

    model.register_forward_hook(look_and_fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        train(model, features_of(folder), recipe, 0, 0, "test")
    assert seen == {"tf32" if torch.cuda.is_available() else "ieee"}
    assert torch.backends.cuda.matmul.fp32_precision == "ieee"


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has both")
def test_settings_for_gpus_change_nothing_without_one(folder):
    features = features_of(folder)

    def answers(**settings):
        recipe = FinetuneRecipe(max_length=24, epochs=1, batch_size=4, **settings)
        model = build_model(GLUE["cola"], folder, recipe, 0)
        train(model, features, recipe, 0, 0, "test")
        return [output.tolist() for output in outputs_of(model, features, recipe, 0)]

    assert answers(tf32=True, cuda_graphs=True) == answers()
