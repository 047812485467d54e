"""Wide heads of one projection, their start, and what they are kept in."""

import logging

import pytest
import torch
from attention_helpers import build, hidden_states, is_symmetric, logits, rotation
from helpers import POSITIONS, attending_as_the_reference, make_batch, run_with_gradients, tiny_config, tiny_model
from torch.testing import assert_close

from sharedqkv import SharedQKVConfig, SharedQKVModel
from sharedqkv.accounting import flops_formula, forward_flops_per_token
from sharedqkv.attention import Geometry, build_variant
from sharedqkv.models import modeling
from sharedqkv.models.specs import config_from_spec


def rotary_config(**options):
    return tiny_config("overlapping", attention_options=options, position_embedding_type="rotary")


def first_variant(model):
    return model.encoder.attentions()[0].self


@pytest.mark.parametrize(("slices", "vectors"), [(1, 5), (2, 9), (4, 17)])
def test_has_one_matrix_and_vectors(slices, vectors):
    variant = build("overlapping", width=512, num_heads=8, slices=slices)
    assert variant.parameter_formula() == 512 * 512 + vectors * 512
    assert sum(parameter.numel() for parameter in variant.parameters()) == variant.parameter_formula()


def test_only_scores_cost_more_flops_than_those_of_shared():
    specs = ("shared", "overlapping:slices=4")
    shared, wide = (config_from_spec(spec, "medium", position_embedding_type="rotary") for spec in specs)
    three_slices = 8 * 2 * 128 * 3 * 512  # layers, a multiply-add, tokens, slices, width
    assert forward_flops_per_token(wide, 128) - forward_flops_per_token(shared, 128) == three_slices
    assert flops_formula(wide, 128) == forward_flops_per_token(wide, 128)


def test_queries_and_keys_have_the_next_heads_slices_too():
    variant, hidden = build("overlapping", speed=3), hidden_states()
    with torch.no_grad():
        for parameter in (variant.query_scale, variant.key_scale, variant.value_scale):
            parameter.normal_()
    projected = variant(hidden)
    s = variant.shared(hidden).unflatten(-1, (3, 8))
    for head in range(3):
        own, after = s[:, :, head], s[:, :, (head + 1) % 3]
        both, part = torch.cat((own, after), dim=-1), slice(16 * head, 16 * head + 16)
        q = 3 * (both * variant.query_scale[head] + variant.query_bias[part])
        k = 3 * (both * variant.key_scale[head] + variant.key_bias[part])
        assert_close(projected.q_BHLK[:, head], q)
        assert_close(projected.k_BGLK[:, head], k)
        assert torch.equal(projected.v_BGLK[:, head], own)
    assert torch.equal(projected.output_scale_HK.flatten(), 3 * variant.value_scale)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("positions", POSITIONS)
def test_other_options_equal_the_reference(positions, folded):
    options = {"slices": 3, "speed": 5}
    config = tiny_config("overlapping", attention_options=options, position_embedding_type=positions)
    model, batch = tiny_model("MaskedLM", config, dtype=torch.float64), make_batch("MaskedLM")
    if folded:
        model.fold()
    outputs, found = run_with_gradients(model, "MaskedLM", batch)
    with attending_as_the_reference(model, batch.inputs["attention_mask"]):
        expected_outputs, expected = run_with_gradients(model, "MaskedLM", batch)
    assert_close(outputs.logits, expected_outputs.logits, atol=1e-9, rtol=1e-7)
    assert found.keys() == expected.keys() == {name for name, _ in model.named_parameters()}
    for name, gradient in expected.items():
        assert_close(found[name], gradient, atol=1e-9, rtol=1e-7, msg=lambda text, name=name: f"{name}: {text}")


@torch.no_grad()
def test_heads_first_look_at_their_neighbours():
    config = SharedQKVConfig.from_size(
        "medium", attention_variant="overlapping", position_embedding_type="rotary", num_hidden_layers=1
    )
    model = SharedQKVModel._from_config(config, attn_implementation="eager").eval()
    weights_HLL = model(torch.randint(5, 30000, (1, 64)), output_attentions=True).attentions[0][0]
    for weights_LL, offset in zip(weights_HLL, (1, -1, 2, -2, 3, -3, 4, -4), strict=True):
        by_distance = {n: weights_LL.diagonal(n).mean().item() for n in range(-16, 17)}
        assert max(by_distance, key=by_distance.__getitem__) == offset
        assert by_distance[offset] > 1.2 * by_distance[0]


def test_logits_are_not_symmetric():
    variant, hidden = build("overlapping"), hidden_states()
    assert not is_symmetric(logits(variant, hidden))
    assert not is_symmetric(logits(variant, hidden, rotation(16)))


@pytest.mark.parametrize("speed", [1, 8])
def test_queries_start_with_random_signs(speed):
    model = SharedQKVModel(rotary_config(speed=speed))
    first, second = (attention.self for attention in model.encoder.attentions()[:2])
    assert set(first.query_scale.flatten().tolist()) == {-1 / speed, 1 / speed}
    assert not torch.equal(first.query_scale, second.query_scale)
    assert (first.key_scale == 1 / speed).all()
    assert (first.value_scale == 1 / speed).all()


def test_the_start_of_a_checkpoint_stays(tmp_path):
    model = SharedQKVModel(rotary_config())
    model.save_pretrained(tmp_path)
    loaded = SharedQKVModel.from_pretrained(tmp_path)
    for name, parameter in model.named_parameters():
        assert torch.equal(loaded.get_parameter(name), parameter), name


def test_speed_moves_diagonals_and_biases_farther_and_the_matrix_as_far():
    """After one step that moves all weights alike, as Adam's first does, from the same function."""
    ids, moved = torch.arange(6, 30).view(2, 12), []
    for speed in (1, 4):
        torch.manual_seed(0)
        model = SharedQKVModel(rotary_config(speed=speed)).double()
        variant = first_variant(model)
        before = {name: parameter.detach().clone() for name, parameter in variant.named_parameters()}
        hidden = model(ids).last_hidden_state
        hidden.pow(3).sum().backward()
        torch.optim.Adam(variant.parameters(), lr=0.01).step()
        units = {name: 1 if name == "shared.weight" else speed for name in before}
        changes = {name: units[name] * (weight - before[name]) for name, weight in variant.named_parameters()}
        moved.append((hidden.detach(), changes))
    (slow_hidden, slow), (fast_hidden, fast) = moved
    assert_close(fast_hidden, slow_hidden)
    assert_close(fast.pop("shared.weight"), slow.pop("shared.weight"), rtol=1e-3, atol=1e-6)
    for name, change in fast.items():
        assert_close(change, 4 * slow[name], rtol=1e-3, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_the_values_diagonal_folds(positions):
    model = tiny_model("Model", tiny_config("overlapping", position_embedding_type=positions))
    inputs = make_batch("Model").inputs
    before = model(**inputs).last_hidden_state
    model.fold()
    assert_close(model(**inputs).last_hidden_state, before, atol=1e-4, rtol=1e-4)
    assert model.config.attention_options == {"slices": 2, "speed": 8, "diagonals": "query_key"}
    left = {"shared.weight", "query_scale", "key_scale", "query_bias", "key_bias"}
    assert {name for name, _ in first_variant(model).named_parameters()} == left


def test_learned_positions_are_told_once(caplog):
    logging.Logger.warning_once.cache_clear()
    with caplog.at_level(logging.WARNING, modeling.__name__):
        SharedQKVModel(rotary_config())
        SharedQKVModel(tiny_config("shared"))
        with torch.device("meta"):
            SharedQKVModel(tiny_config("overlapping"))  # as `sharedqkv params` counts
        assert not caplog.records
        for _ in range(2):
            SharedQKVModel(tiny_config("overlapping"))
    (record,) = caplog.records
    assert "attention_variant='overlapping' is made for rotary positions" in record.message
    assert 'Set position_embedding_type="rotary".' in record.message


def test_another_base_of_the_rotation_is_told(caplog):
    logging.Logger.warning_once.cache_clear()
    with caplog.at_level(logging.WARNING, modeling.__name__):
        SharedQKVModel(tiny_config("overlapping", position_embedding_type="rotary", rotary_base=500.0))
    (record,) = caplog.records
    assert "starts with biases for rotary_base=10000: with 500 its heads do not look" in record.message


def test_heads_of_odd_size_start_too():
    model = SharedQKVModel(tiny_config("overlapping", hidden_size=20, attention_options={"slices": 3}))
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    assert first_variant(model).head_size == 15


@pytest.mark.parametrize("option", ["slices", "speed"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True, "4"])
def test_bad_numbers_are_refused(option, value):
    with pytest.raises(ValueError, match=f"'{option}' must be a positive integer, not {value!r}"):
        build_variant("overlapping", Geometry(24, 3), {option: value})


def test_more_slices_than_heads_are_refused():
    with pytest.raises(ValueError, match=r"'slices' must be at most the number of heads, 3, not 4: .*fewer slices"):
        build_variant("overlapping", Geometry(24, 3), {"slices": 4})


def test_only_diagonals_that_exist():
    with pytest.raises(ValueError, match="'diagonals' must be one of query_key_value, query_key, not 'query'"):
        build_variant("overlapping", Geometry(24, 3), {"diagonals": "query"})
