"""What is timed is a real training step and a real forward pass."""

import pytest
import torch
from helpers import tiny_config
from transformers import BertConfig, BertForMaskedLM

from sharedqkv import SharedQKVForMaskedLM
from sharedqkv.accounting.bench.passes import Batch, ForwardPass, TrainStep, memory_of, num_masked, seconds_of, watts_of
from sharedqkv.data.masking import Masking
from sharedqkv.models.losses import IGNORED

CPU = torch.device("cpu")


@pytest.fixture
def batch():
    return Batch.random(40, rows=3, length=16, device=CPU)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return SharedQKVForMaskedLM(tiny_config("shared"))


@pytest.mark.parametrize("length", [1, 7, 128, 512])
def test_as_many_tokens_are_masked_as_in_pretraining(length):
    assert num_masked(length) == Masking(vocabulary=None, seed=0).num_targets(length)


def test_labels_of_all_tokens_are_the_masked_ones_spread_out(batch):
    labels = batch.labels_of_all_tokens()
    assert torch.equal(labels.gather(1, batch.positions_BM), batch.labels_BM)
    assert (labels != IGNORED).sum() == batch.labels_BM.numel() == 3 * num_masked(16)


def test_training_steps_lower_the_loss_and_leave_no_gradients(model, batch):
    step = TrainStep(model, batch, bf16=False)
    before = step.results(without_dropout=False)["loss"]
    for _ in range(20):
        step()
    assert step.results(without_dropout=False)["loss"] < before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_results_are_the_loss_and_gradients_of_the_model(model, batch):
    results = TrainStep(model, batch, bf16=False).results(without_dropout=False)
    expected = model(input_ids=batch.ids_BL, labels=batch.labels_of_all_tokens()).loss
    expected.backward()
    torch.testing.assert_close(results.pop("loss"), expected.detach())
    hidden_states = model.eval().bert(input_ids=batch.ids_BL[:8]).last_hidden_state
    torch.testing.assert_close(results.pop("hidden states"), hidden_states.detach())
    assert set(results) == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(results[name], parameter.grad)


def test_a_step_asks_our_models_for_the_loss_alone(model, batch):
    seen = []
    model.register_forward_pre_hook(lambda module, args, kwargs: seen.append(kwargs.get("loss_only")), with_kwargs=True)
    TrainStep(model, batch, bf16=False)()
    assert seen == [True]


def test_dropout_does_not_disturb_results_but_acts_in_steps(batch):
    model = SharedQKVForMaskedLM(tiny_config(hidden_dropout_prob=0.5))
    step = TrainStep(model, batch, bf16=False)
    first, second = (step.results(without_dropout=True)["loss"] for _ in range(2))
    assert first == second
    assert model.training
    first, second = (step.results(without_dropout=False)["loss"] for _ in range(2))
    assert first != second


def test_a_peer_trains_on_labels_for_all_tokens(batch):
    peer = BertForMaskedLM(
        BertConfig(vocab_size=40, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    )
    step = TrainStep(peer, batch, bf16=False, all_labels=True)
    assert set(step.inputs) == {"input_ids", "labels"}
    step()


def test_the_forward_pass_gives_the_encoders_states_and_leaves_the_model_alone(model, batch):
    plain = ForwardPass(model, batch, bf16=False).results()["hidden states"]
    torch.testing.assert_close(plain, model.eval().bert(batch.ids_BL).last_hidden_state.detach())
    half = ForwardPass(model, batch, bf16=True)
    assert {parameter.dtype for parameter in half.model.parameters()} == {torch.bfloat16}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_compiled_is_what_runs_when_asked_for(model, batch, monkeypatch):
    calls = []

    def compile_(module, **options):
        def call(**inputs):
            calls.append(module)
            return module(**inputs)

        return call

    monkeypatch.setattr(torch, "compile", compile_)
    step, forward = TrainStep(model, batch, False, compiled=True), ForwardPass(model, batch, False, compiled=True)
    step()
    forward()
    assert calls == [step.model, forward.model]


def test_held_bytes_are_weights_and_adams_moments(model, batch):
    step = TrainStep(model, batch, bf16=False)
    weights = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert step.held_bytes() == weights
    step()
    counters = 4 * len(list(model.parameters()))
    assert step.held_bytes() == 3 * weights + counters


def test_seconds_are_of_one_step():
    import time

    seconds = [seconds_of(lambda: time.sleep(0.01), steps=3) for _ in range(5)]
    assert 0.01 <= min(seconds) < 0.02  # one may be held up on a busy machine


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has both")
def test_without_a_gpu_there_is_no_memory_and_no_energy_to_read(model, batch):
    step = TrainStep(model, batch, bf16=False)
    assert memory_of(step) is None
    assert watts_of(step, 0.1) is None
