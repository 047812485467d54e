"""Two backends that do not compute the same are told apart, whatever is wrong."""

import pytest
import torch
from helpers import tiny_config, tiny_model

from sharedqkv import SharedQKVForMaskedLM
from sharedqkv.accounting.bench.entrants import Entrant
from sharedqkv.accounting.bench.equivalence import agreement, require
from sharedqkv.accounting.bench.passes import Batch, TrainStep

OURS = Entrant("shared:fused", "fused", None, SharedQKVForMaskedLM, same_as="shared:sdpa")
PEER = Entrant("hf_bert", "sdpa", None, object, is_peer=True, same_as="standard:sdpa")


def results(**changes):
    generator = torch.Generator().manual_seed(0)
    values = {"loss": torch.tensor(10.0), "weight": torch.randn(50, 50, generator=generator)}
    # A gradient that is zero but for rounding.
    return {**values, "bias": 1e-8 * torch.randn(50, generator=generator), **changes}


def test_equal_results_agree():
    found = agreement(OURS, results(), results(), "float32")
    assert found.holds
    assert found.difference == 0
    require(found)


def test_rounding_is_allowed_and_more_in_bfloat16():
    rounded = {name: value.bfloat16() for name, value in results().items()}
    assert agreement(OURS, rounded, results(), "bfloat16").holds
    found = agreement(OURS, rounded, results(), "float32")
    assert not found.holds
    assert found.result == "weight"


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"loss": torch.tensor(10.1)}, "loss"),
        ({"loss": torch.tensor(float("nan"))}, "loss"),
        ({"weight": 0.8 * results()["weight"]}, "weight"),
        ({"weight": torch.full((50, 50), float("nan"))}, "weight"),
        ({"bias": torch.ones(50)}, "bias"),
    ],
)
def test_a_wrong_result_is_named_and_no_speed_printed(changes, name):
    found = agreement(OURS, results(**changes), results(), "bfloat16")
    assert not found.holds
    with pytest.raises(ValueError, match=f"shared:fused does not compute what shared:sdpa does: {name} differs"):
        require(found)


def test_gradients_that_are_only_rounding_may_differ():
    assert agreement(OURS, results(bias=-results()["bias"]), results(), "float32").holds


def test_a_peer_is_held_to_its_loss_and_hidden_states_only():
    states = {"hidden states": torch.ones(3, 4)}
    expected = results(**states)
    assert agreement(PEER, results(**states, weight=torch.zeros(1)), expected, "float32").holds
    assert not agreement(PEER, results(**states, loss=torch.tensor(10.1)), expected, "float32").holds
    assert not agreement(PEER, results(**{"hidden states": torch.zeros(3, 4)}), expected, "float32").holds


def test_a_peer_without_attention_is_found_out_in_bfloat16():
    """At random weights its loss is nearly the same."""
    torch.manual_seed(0)
    config = tiny_config(initializer_range=0.02)
    batch = Batch.random(config.vocab_size, 4, 16, torch.device("cpu"))
    whole, broken = (tiny_model("MaskedLM", config) for _ in range(2))
    broken.load_state_dict(whole.state_dict())
    expected = TrainStep(whole, batch, bf16=False).results(without_dropout=False)
    for attention in broken.bert.encoder.attentions():
        torch.nn.init.zeros_(attention.output.dense.weight)
    found = TrainStep(broken, batch, bf16=False).results(without_dropout=False)
    assert agreement(PEER, found, expected, "bfloat16").result == "hidden states"
    assert not agreement(PEER, found, expected, "bfloat16").holds
