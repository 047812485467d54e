"""Promises 4, 5, 6, 7 and 9 of pre-training, through the command line."""

import json
import shutil
import signal

import pytest
import torch
from accelerate import PartialState
from pretraining_helpers import KILL_AT_STEP, KILL_IN_SAVE, curve, make_corpus, run_child, run_here
from safetensors.torch import load_file
from torch.testing import assert_close

from sharedqkv import SharedQKVForMaskedLM

TELL_OPEN_GROUP = """
import atexit, torch
atexit.register(lambda: torch.distributed.is_initialized() and print("a group is open", file=sys.stderr))
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def undisturbed(corpus, tmp_path_factory):
    """A run that was never stopped."""
    output = tmp_path_factory.mktemp("undisturbed") / "run"
    assert run_here(corpus, output) == 0
    return output


def assert_same_run(output, undisturbed):
    assert curve(output) == curve(undisturbed)
    one, other = (load_file(path / "model" / "model.safetensors") for path in (output, undisturbed))
    assert all(torch.equal(one[name], other[name]) for name in other)


def test_leaves_a_run_folder(undisturbed):
    info = json.loads((undisturbed / "run.json").read_text())
    assert (info["state"], info["step"]) == ("done", 20)
    assert info["recipe"]["size"] == "tiny"
    steps = [record["step"] for record in curve(undisturbed) if "loss" in record]
    assert steps == list(range(2, 21, 2))
    assert curve(undisturbed)[-1]["eval_loss"] == info["eval_loss"]
    assert curve(undisturbed)[-1]["eval_loss"] < curve(undisturbed)[0]["loss"]
    assert {path.name for path in (undisturbed / "checkpoints").iterdir()} == {"checkpoint-16", "checkpoint-20"}
    assert (undisturbed / "plots" / "loss.png").stat().st_size > 1000
    assert not list(undisturbed.rglob("*.bin"))
    SharedQKVForMaskedLM.from_pretrained(undisturbed / "model")


def test_steps_and_evaluations_ask_for_the_loss_alone(corpus, tmp_path, monkeypatch):
    seen = []
    forward = SharedQKVForMaskedLM.forward

    def watched(self, *args, loss_only=False, **kwargs):
        seen.append(loss_only)
        return forward(self, *args, loss_only=loss_only, **kwargs)

    monkeypatch.setattr(SharedQKVForMaskedLM, "forward", watched)
    assert run_here(corpus, tmp_path / "run", max_steps=4) == 0
    assert len(seen) > 4
    assert all(seen)


@pytest.mark.parametrize("workers", [0, 2])
def test_killed_twice_and_resumed_gives_the_same_losses(corpus, undisturbed, tmp_path, workers):
    """Killed in the middle of a later epoch (a step that is no record), then in the middle of a save."""
    output = tmp_path / "run"
    first = run_child(KILL_AT_STEP.format(step=11, signal="SIGKILL"), corpus, output, workers=workers)
    assert first.returncode == -signal.SIGKILL, first.stderr[-2000:]
    second = run_child(KILL_IN_SAVE.format(step=16), corpus, output, workers=workers, resume="auto")
    assert second.returncode == -signal.SIGKILL
    assert "resuming from" in second.stderr
    assert "checkpoint-8" in second.stderr
    assert (output / "checkpoints" / "checkpoint-16" / "model.safetensors").exists()
    assert run_here(corpus, output, workers=workers, resume="auto") == 0
    assert_same_run(output, undisturbed)


@pytest.mark.parametrize(("name", "step"), [("SIGTERM", 6), ("SIGINT", 7)])
def test_a_signal_saves_and_says_how_to_go_on(corpus, undisturbed, tmp_path, name, step):
    output = tmp_path / "run"
    stopped = run_child(KILL_AT_STEP.format(step=step, signal=name), corpus, output)
    assert stopped.returncode == 128 + getattr(signal, name), stopped.stderr[-2000:]
    assert f"stopped at step {step}; saved in" in stopped.stderr
    assert "--resume auto" in stopped.stderr
    assert json.loads((output / "run.json").read_text())["state"] == "stopped"
    assert run_here(corpus, output, resume="auto") == 0
    assert_same_run(output, undisturbed)


@pytest.mark.parametrize("harm", ["truncate", "flip", "delete"])
def test_a_damaged_checkpoint_is_skipped_and_named(corpus, undisturbed, tmp_path, capsys, harm):
    output = tmp_path / "run"
    shutil.copytree(undisturbed, output)
    damaged = output / "checkpoints" / "checkpoint-20" / "optimizer.pt"
    content = damaged.read_bytes()
    if harm == "delete":
        damaged.unlink()
    else:
        damaged.write_bytes(content[:100] if harm == "truncate" else content[:50] + b"\xff" + content[51:])
    info = json.loads((output / "run.json").read_text())
    (output / "run.json").write_text(json.dumps({**info, "state": "running"}))
    assert run_here(corpus, output, resume="auto") == 0
    message = capsys.readouterr().err
    assert "skipping" in message
    assert "checkpoint-20: optimizer.pt is" in message
    assert "resuming from" in message
    assert_same_run(output, undisturbed)


def test_accumulation_gives_the_same_trajectory(corpus, tmp_path):
    """Without dropout, whose draws depend on the shape of the batch."""
    for rows in (8, 1):
        assert run_here(corpus, tmp_path / str(rows), rows_per_device=rows, dropout=0.0) == 0
    assert_curves_close(tmp_path / "1", tmp_path / "8")


def test_two_processes_give_the_same_trajectory(corpus, tmp_path):
    fields = {"rows_per_device": 4, "dropout": 0.0, "eval_rows": 13}
    assert run_here(corpus, tmp_path / "one", **{**fields, "rows_per_device": 8}) == 0
    result = run_child(TELL_WRAPPED, corpus, tmp_path / "two", launcher=two_processes(), **fields)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stderr.count("wrapped models outlive their group: 0") == 2
    assert_curves_close(tmp_path / "two", tmp_path / "one")


TELL_WRAPPED = """
import gc
import torch.distributed

def tell(*group):
    from torch.nn.parallel import DistributedDataParallel
    wrapped = [thing for thing in gc.get_objects() if issubclass(type(thing), DistributedDataParallel)]
    sys.stderr.write(f"wrapped models outlive their group: {len(wrapped)}\\n")
    destroy(*group)

destroy, torch.distributed.destroy_process_group = torch.distributed.destroy_process_group, tell
"""
"""Such a model would destroy the group with the GIL held, for which threads of gloo may wait: it hangs now and then."""


def two_processes() -> tuple[str, ...]:
    return ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")


def test_two_processes_resume_exactly_after_a_signal(corpus, tmp_path):
    """With dropout, of which every process draws its own."""
    fields = {"launcher": two_processes(), "rows_per_device": 4, "max_steps": 12}
    whole = run_child(TELL_OPEN_GROUP, corpus, tmp_path / "whole", **fields)
    assert whole.returncode == 0
    assert "a group is open" not in whole.stderr
    stopped = run_child(KILL_AT_STEP.format(step=5, signal="SIGTERM"), corpus, tmp_path / "run", **fields)
    assert "stopped at step 6" in stopped.stderr, stopped.stderr[-3000:]
    saved = tmp_path / "run" / "checkpoints" / "checkpoint-6"
    assert (saved / "rng_state_0.pth").read_bytes() != (saved / "rng_state_1.pth").read_bytes()
    resumed = run_child("", corpus, tmp_path / "run", resume="auto", **fields)
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_two_processes_agree_on_the_clock(corpus, tmp_path):
    budget = {"max_steps": "null", "max_minutes": 0.05}
    result = run_child("", corpus, tmp_path / "run", launcher=two_processes(), rows_per_device=4, **budget)
    assert result.returncode == 0, result.stderr[-3000:]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "done"


def assert_curves_close(one, other):
    found, expected = curve(one), curve(other)
    assert [record.keys() for record in found] == [record.keys() for record in expected]
    for name in ("loss", "grad_norm", "eval_loss"):
        values = [[record[name] for record in records if name in record] for records in (found, expected)]
        assert_close(torch.tensor(values[0]), torch.tensor(values[1]), atol=2e-5, rtol=2e-5)


def test_the_number_of_workers_does_not_matter(corpus, undisturbed, tmp_path):
    assert run_here(corpus, tmp_path / "run", workers=2) == 0
    assert_same_run(tmp_path / "run", undisturbed)


@pytest.mark.parametrize("layout", ["packed", "pairs"])
def test_other_layouts_train(tmp_path, layout):
    corpus = make_corpus(tmp_path, layout)
    next_sentence = {"next_sentence": "true"} if layout == "pairs" else {}
    assert run_here(corpus, tmp_path / "run", whole_words="true", **next_sentence) == 0
    losses = [record["loss"] for record in curve(tmp_path / "run") if "loss" in record]
    assert losses[-1] < losses[0]


def test_a_budget_in_minutes_ends_in_time(corpus, tmp_path, monkeypatch):
    assert run_here(corpus, tmp_path / "run", max_steps="null", max_minutes=0.05, save_steps=1000) == 0
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["state"] == "done"
    progress = json.loads(
        (tmp_path / "run" / "checkpoints" / f"checkpoint-{info['step']}" / "progress.json").read_text()
    )
    assert progress["elapsed_s"] >= 3
    before, closed = curve(tmp_path / "run"), []
    monkeypatch.setattr(PartialState, "destroy_process_group", lambda state: closed.append(state))
    assert run_here(corpus, tmp_path / "run", max_steps="null", max_minutes=0.05, save_steps=1000, resume="auto") == 0
    assert curve(tmp_path / "run") == before, "a finished run is left alone"
    assert len(closed) == 1, "a process that ends with its group open may abort"


@pytest.mark.parametrize(("budget", "steps"), [({"max_epochs": 0.5}, None), ({"max_tokens": 1000}, 4)])
def test_budgets_in_epochs_and_tokens(corpus, tmp_path, budget, steps):
    from sharedqkv.data.shards import ShardedRows

    assert run_here(corpus, tmp_path / "run", max_steps="null", **budget) == 0
    expected = steps or -(-len(ShardedRows.open(corpus, "train")) // 16)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["step"] == expected
