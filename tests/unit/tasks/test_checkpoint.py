"""What may be fine-tuned, and what is known about it."""

import json

import pytest
from finetuning_helpers import make_model

from sharedqkv.tasks.checkpoint import find_checkpoint
from sharedqkv.tasks.glue import GLUE
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.tasks.training import build_model


def make_pretraining_run(folder, seed=7):
    make_model(folder / "model", "shared")
    (folder / "run.json").write_text(json.dumps({"kind": "pretrain", "state": "done", "recipe": {"seed": seed}}))
    return folder


@pytest.mark.parametrize("inner", ["", "model"])
def test_a_pretraining_run_is_known_by_its_seed(inner, tmp_path):
    run = make_pretraining_run(tmp_path / "run")
    checkpoint = find_checkpoint(str(run / inner))
    assert (checkpoint.folder, checkpoint.parent) == (run / "model", str(run))
    assert (checkpoint.pretraining_seed, checkpoint.variant, checkpoint.max_positions) == (7, "shared", 40)


def test_a_folder_with_a_model(tmp_path):
    checkpoint = find_checkpoint(str(make_model(tmp_path)))
    assert (checkpoint.parent, checkpoint.pretraining_seed, checkpoint.has_head) == (str(tmp_path), None, False)


def test_the_hash_follows_the_weights(tmp_path):
    one, same, other = (
        find_checkpoint(str(make_model(tmp_path / str(n), seed=seed))) for n, seed in enumerate((0, 0, 1))
    )
    assert one.sha256 == same.sha256 != other.sha256


def test_a_fine_tuned_head_is_noticed(tmp_path):
    model = build_model(GLUE["mnli"], make_model(tmp_path / "one"), FinetuneRecipe(), 0)
    model.save_pretrained(tmp_path / "two")
    assert find_checkpoint(str(tmp_path / "two")).has_head


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder, nor to be had from the hub"):
        find_checkpoint(str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"holds no config\.json"):
        find_checkpoint(str(tmp_path))
    make_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"holds no \*\.safetensors"):
        find_checkpoint(str(tmp_path))


def test_an_unfinished_run_is_told(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"kind": "pretrain", "state": "running", "recipe": {"seed": 0}}))
    with pytest.raises(FileNotFoundError, match="has no model/: its state is 'running'"):
        find_checkpoint(str(tmp_path))


def test_damaged_weights_are_named(tmp_path):
    make_model(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"model\.safetensors: the weights are damaged"):
        find_checkpoint(str(tmp_path))
