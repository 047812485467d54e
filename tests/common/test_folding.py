"""`fold()` on every variant and head: less to compute, the same outputs."""

import pytest
import torch
from helpers import HEADS, POSITIONS, make_batch, tensors_of, tiny_config, tiny_model
from torch.testing import assert_close

from sharedqkv.accounting import count_parameters

pytestmark = pytest.mark.parametrize("positions", POSITIONS)


@pytest.mark.parametrize("head", HEADS)
@torch.no_grad()
def test_outputs_stay_and_survive_saving(variant, head, positions, tmp_path):
    model = tiny_model(head, tiny_config(variant, position_embedding_type=positions))
    batch = make_batch(head).all()
    before = tensors_of(model(**batch))
    assert model.fold() is model
    after = tensors_of(model(**batch))
    for name, value in before.items():
        largest = value.abs().max().item()
        assert_close(after[name], value, rtol=0, atol=1e-5 * largest, msg=lambda text, name=name: f"{name}: {text}")

    model.save_pretrained(tmp_path)
    loaded, info = HEADS[head].from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    for name, value in tensors_of(loaded(**batch)).items():
        assert torch.equal(value, after[name]), name


@torch.no_grad()
def test_a_second_time_changes_nothing(variant, positions):
    model = tiny_model("Model", tiny_config(variant, position_embedding_type=positions)).fold()
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    options = model.config.attention_options
    model.fold()
    assert model.config.attention_options == options
    assert model.state_dict().keys() == weights.keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, weights[name]), name


def test_counts_and_configuration_follow(variant, positions):
    model = tiny_model("Model", tiny_config(variant, position_embedding_type=positions)).fold()
    attention = model.encoder.attentions()[0].self
    held = sum(parameter.numel() for parameter in attention.parameters())
    assert held == attention.parameter_formula() == count_parameters(model.config).qkv
