"""What goes wrong while pre-training stops with a message that names the file and the remedy; nothing good is lost."""

import json
import shutil

import pytest
import torch
from filelock import FileLock
from pretraining_helpers import curve, make_corpus, run_here
from safetensors.torch import load_file

from sharedqkv.models import heads
from sharedqkv.training import checkpoints
from sharedqkv.training.recipe import load_recipe, shipped_recipes
from sharedqkv.training.trainer import PretrainTrainer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def own_corpus(corpus, tmp_path):
    return shutil.copytree(corpus, tmp_path / "corpus")


def refused(capsys, *arguments, **fields):
    assert run_here(*arguments, **fields) == 2
    return capsys.readouterr().err


def test_truncated_shard(own_corpus, tmp_path, capsys):
    shard = own_corpus / "train-00000.npy"
    shard.write_bytes(shard.read_bytes()[:-10])
    message = refused(capsys, own_corpus, tmp_path / "run")
    assert "train-00000.npy" in message
    assert "prepare" in message
    assert not (tmp_path / "run").exists()


def test_flipped_byte_in_a_shard(own_corpus, tmp_path, capsys):
    shard = own_corpus / "train-00000.npy"
    content = bytearray(shard.read_bytes())
    content[-5] ^= 1
    shard.write_bytes(content)
    message = refused(capsys, own_corpus, tmp_path / "run")
    assert "train-00000.npy is not what was written" in message
    assert not (tmp_path / "run").exists()


def test_another_tokenizer(own_corpus, tmp_path, capsys):
    from transformers import BertTokenizer

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"]
    BertTokenizer(vocab={word: index for index, word in enumerate(words)}).save_pretrained(own_corpus / "tokenizer")
    assert "prepared with another tokenizer" in refused(capsys, own_corpus, tmp_path / "run")


def test_no_corpus(tmp_path, capsys):
    assert "manifest.json is missing" in refused(capsys, tmp_path / "nothing", tmp_path / "run")


def test_unwritable_output(corpus, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    message = refused(capsys, corpus, tmp_path / "file" / "run")
    assert "cannot be written" in message
    assert "choose another --output" in message


def test_next_sentence_needs_pairs(corpus, tmp_path, capsys):
    assert "prepare it with --layout pairs" in refused(capsys, corpus, tmp_path / "run", next_sentence="true")


def assert_checkpoints_are_finite(run, names):
    found = checkpoints.checkpoints_in(run / "checkpoints")
    assert {path.name for path in found} == names
    for checkpoint in found:
        assert checkpoints.damage_of(checkpoint) is None
        assert all(torch.isfinite(t).all() for t in load_file(checkpoint / "model.safetensors").values())


def test_a_loss_that_is_no_number(corpus, tmp_path, capsys, monkeypatch):
    real, calls = heads.cross_entropy, []

    def sometimes_nan(*arguments):
        calls.append(1)
        return real(*arguments) * (float("nan") if len(calls) == 11 else 1)

    monkeypatch.setattr(heads, "cross_entropy", sometimes_nan)
    message = refused(capsys, corpus, tmp_path / "run", eval_steps=1000)
    assert "the loss is nan at step 11" in message
    assert (tmp_path / "run" / "non_finite_batch_11.safetensors").exists()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "failed"
    assert_checkpoints_are_finite(tmp_path / "run", {"checkpoint-4", "checkpoint-8"})


def test_weights_that_are_no_numbers_are_never_saved(corpus, tmp_path, capsys, monkeypatch):
    """A gradient overflows in the very step of a save; the loss of that step is fine."""
    real = PretrainTrainer.training_step

    def overflowing(self, model, *rest):
        loss = real(self, model, *rest)
        if self.state.global_step == 7:
            next(model.parameters()).grad.fill_(float("nan"))
        return loss

    monkeypatch.setattr(PretrainTrainer, "training_step", overflowing)
    message = refused(capsys, corpus, tmp_path / "run", keep_checkpoints=1)
    assert "weights are not finite at step 8" in message
    assert_checkpoints_are_finite(tmp_path / "run", {"checkpoint-4"})


def test_two_trainings_do_not_share_a_run_folder(corpus, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    with FileLock(tmp_path / "run" / ".lock"):
        assert "another process is training in" in refused(capsys, corpus, tmp_path / "run")


def test_a_run_that_never_trained_does_not_stand_in_the_way(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        PretrainTrainer, "resume", lambda self, checkpoint: (_ for _ in ()).throw(ValueError("no luck"))
    )
    assert "no luck" in refused(capsys, corpus, tmp_path / "run")
    monkeypatch.undo()
    assert run_here(corpus, tmp_path / "run", max_steps=2) == 0


def test_many_gpus_need_many_processes(corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert "torchrun --nproc-per-node 4" in refused(capsys, corpus, tmp_path / "run")


def test_a_full_disk_leaves_the_last_good_checkpoint(corpus, tmp_path, capsys, monkeypatch):
    """torch.save fails in the middle of the third checkpoint, as it does when the disk is full."""
    real, calls = torch.save, []

    def failing(thing, path, *args, **kwargs):
        if "checkpoint-12" in str(path):
            with open(path, "wb") as file:
                file.write(b"half a file")
            raise RuntimeError("PytorchStreamWriter failed writing file: No space left on device")
        calls.append(path)
        return real(thing, path, *args, **kwargs)

    monkeypatch.setattr(torch, "save", failing)
    message = refused(capsys, corpus, tmp_path / "run", keep_checkpoints=1)
    assert "checkpoint-12 could not be written" in message
    assert "No space left on device" in message
    assert "checkpoint-8 is complete" in message
    assert calls
    monkeypatch.setattr(torch, "save", real)
    assert run_here(corpus, tmp_path / "run", keep_checkpoints=1, resume="auto") == 0
    assert run_here(corpus, tmp_path / "undisturbed") == 0
    assert curve(tmp_path / "run") == curve(tmp_path / "undisturbed")


def test_an_existing_run_is_never_overwritten(corpus, tmp_path, capsys):
    assert run_here(corpus, tmp_path / "run", max_steps=4) == 0
    before = (tmp_path / "run" / "run.json").read_bytes()
    message = refused(capsys, corpus, tmp_path / "run", max_steps=4)
    assert "holds a run already: continue it with --resume auto, or choose another --output" in message
    message = refused(capsys, corpus, tmp_path / "run", max_steps=4, learning_rate=0.5, resume="auto")
    assert "is another run: learning_rate was 0.002, is 0.5" in message
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_resuming_from_a_named_checkpoint(corpus, tmp_path, capsys):
    """What came after it belongs to another future and goes."""
    fields = {"max_steps": 12, "keep_checkpoints": 3}
    assert run_here(corpus, tmp_path / "run", **fields) == 0
    folder = tmp_path / "run" / "checkpoints"
    before = curve(tmp_path / "run")
    assert run_here(corpus, tmp_path / "run", resume=folder / "checkpoint-4", **fields) == 0
    assert f"removing {folder / 'checkpoint-12'}" in capsys.readouterr().err
    assert curve(tmp_path / "run") == before
    assert {path.name for path in folder.iterdir()} == {"checkpoint-4", "checkpoint-8", "checkpoint-12"}

    shutil.copytree(folder / "checkpoint-4", folder / "best")
    elsewhere = shutil.copytree(folder / "checkpoint-4", tmp_path / "other" / "checkpoint-4")
    for foreign in (folder / "best", elsewhere):
        assert "is no checkpoint of this run" in refused(capsys, corpus, tmp_path / "run", resume=foreign, **fields)
    (folder / "checkpoint-4" / "complete.json").unlink()
    message = refused(capsys, corpus, tmp_path / "run", resume=folder / "checkpoint-4", **fields)
    assert "cannot be resumed from: it was not finished" in message
    assert curve(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attention_variant": "shard"}, "unknown attention_variant 'shard'"),
        ({"learning_rat": 1}, "unknown key 'learning_rat'. Did you mean 'learning_rate'"),
        ({"size": "huge"}, "unknown size 'huge'"),
        ({"rows_per_device": 3}, "rows_per_step 8 must be a multiple of rows_per_device 3"),
        ({"max_steps": "null"}, "give exactly one of max_steps, max_epochs, max_tokens, max_minutes; given: none"),
        ({"max_epochs": 1}, "given: max_steps, max_epochs"),
        ({"logging_steps": 3}, "logging_steps 3 must divide save_steps 4"),
        ({"schedule": "cosine"}, "schedule must be one of linear, warmup_stable_decay, constant, not 'cosine'"),
        ({"model": "{vocab_size: 7}"}, "model: vocab_size has its own place"),
        ({"mlm_share": 2}, "mlm_share must be between 0 and 1"),
        ({"betas": "[1.5, 0.9]"}, "betas must be in [0, 1), not [1.5, 0.9]"),
        ({"workers": -1}, "workers must not be negative"),
        ({"report_to": "[comet]"}, "report_to must be one of tensorboard, wandb"),
    ],
)
def test_bad_recipes_are_refused_before_anything_is_touched(tmp_path, capsys, fields, message):
    assert message in refused(capsys, tmp_path / "nothing", tmp_path / "run", **fields)
    assert not (tmp_path / "run").exists()


def test_unknown_recipes_list_the_shipped(tmp_path, capsys):
    message = refused(capsys, tmp_path, tmp_path, recipe="tiny_gpu")
    assert all(name in message for name in shipped_recipes())


def test_shipped_recipes():
    assert set(shipped_recipes()) == {"tiny_cpu", "small", "medium", "base", "base_paper", "base_hour", "large"}
    assert load_recipe("base_paper", {}).max_epochs == 20
    assert load_recipe("base_hour", {}).max_minutes == 60


@pytest.mark.parametrize("recipe", shipped_recipes())
def test_every_shipped_recipe_runs_two_steps(tmp_path, recipe):
    """At overridden size, rows and budget; compiling has a test of its own."""
    corpus = make_corpus(tmp_path, "pairs" if recipe == "base_paper" else "chunks")
    assert run_here(corpus, tmp_path / "run", recipe=recipe, max_steps=2, compile="false", workers=0) == 0
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (info["state"], info["step"]) == ("done", 2)


def test_stable_adamw(corpus, tmp_path):
    assert run_here(corpus, tmp_path / "run", optimizer="stable_adamw", max_steps=6) == 0
    losses = [record["loss"] for record in curve(tmp_path / "run") if "loss" in record]
    assert losses[-1] < losses[0]


def test_trackers_that_are_not_installed_are_named(corpus, tmp_path, capsys, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "wandb" else real(name, *rest))
    message = refused(capsys, corpus, tmp_path / "run", report_to="[wandb]")
    assert "report_to names wandb, which is not installed: pip install wandb" in message


def test_compiled(corpus, tmp_path):
    fields = {"max_steps": 4, "dropout": 0.0}
    assert run_here(corpus, tmp_path / "plain", **fields) == 0
    assert run_here(corpus, tmp_path / "compiled", compile="true", **fields) == 0
    plain, compiled = (curve(tmp_path / name)[-1]["eval_loss"] for name in ("plain", "compiled"))
    assert compiled == pytest.approx(plain, rel=1e-3)
