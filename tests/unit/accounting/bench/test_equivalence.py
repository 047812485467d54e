"""Two backends that do not compute the same are told apart, whatever is wrong."""

import pytest
import torch

from sharedqkv import SharedQKVForMaskedLM
from sharedqkv.accounting.bench.entrants import Entrant
from sharedqkv.accounting.bench.equivalence import agreement, require

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


def test_a_peer_is_held_to_its_loss_only():
    assert agreement(PEER, results(weight=torch.zeros(1)), results(), "float32").holds
    assert not agreement(PEER, results(loss=torch.tensor(10.1)), results(), "float32").holds
