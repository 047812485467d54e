"""The counts everybody quotes."""

import pytest

from sharedqkv.accounting import default_specs, savings_report
from sharedqkv.accounting.savings import layers_at_size_of_shared

BASE = {
    "standard": 109_514_298,
    "symmetric": 102_427_194,
    "pairwise": 103_017_018,
    "shared": 95_358_522,
    "shared:bias=true": 95_367_738,
    "tied": 95_330_874,
    "tied:bias=true": 95_340_090,
    "key_value": 102_427_194,
    "narrow": 95_344_698,
    "grouped": 96_521_274,
    "rolled": 95_358_522,
    "overlapping": 95_413_818,
    "standard:num_hidden_layers=10": 95_338_554,
}


@pytest.fixture(scope="module")
def report():
    return savings_report("base", default_specs("base"), [128, 512])


@pytest.fixture(scope="module")
def models(report):
    return {model["spec"]: model for model in report["models"]}


def test_bert_base_counts(models):
    assert {spec: models[spec]["parameters"]["model"] for spec in BASE} == BASE
    assert models["low_rank"]["parameters"]["qkv"] == 768**2 + 3 * 768


def test_qkv_savings(models):
    saved = {spec: round(100 * models[spec]["saving"]["qkv_parameters"], 2) for spec in models}
    assert saved["shared"] == 66.58
    assert saved["shared:bias=true"] == 66.54
    assert saved["standard"] == 0


def test_the_papers_percentages_are_explained(report):
    attention, model = report["paper"]
    assert "66.53 %" in attention["paper"]
    assert round(100 * attention["measured"], 4) == 66.5365
    assert "66.5365%" in attention["explanation"]
    assert "12.94 %" in model["paper"]
    assert round(100 * model["measured"], 2) == 12.94
    assert "12.93%" in model["explanation"]
    assert "12.92%" in model["explanation"]


def test_ceiling_of_the_speed_up(models):
    """The ratios DESIGN and FACTS quote: 1.185 at length 128 and 1.17 at 512."""
    ratios = [models["standard"]["flops_per_token"][n] / models["shared"]["flops_per_token"][n] for n in (128, 512)]
    assert ratios == [pytest.approx(1.185, abs=1e-3), pytest.approx(1.17, abs=2e-3)]


def test_narrow_never_costs_more_than_shared(models):
    narrow, shared = models["narrow"], models["shared"]
    assert narrow["parameters"]["model"] <= shared["parameters"]["model"]
    for length in (128, 512):
        assert narrow["flops_per_token"][length] <= shared["flops_per_token"][length]


@pytest.mark.parametrize("size", ["tiny", "medium", "base", "large"])
def test_the_shallower_standard_is_the_nearest(size):
    from sharedqkv.accounting import count_parameters
    from sharedqkv.models.specs import config_from_spec

    target = count_parameters(config_from_spec("shared", size)).model
    layers = layers_at_size_of_shared(size)
    distances = {
        n: abs(count_parameters(config_from_spec(f"standard:num_hidden_layers={n}", size)).model - target)
        for n in (layers - 1, layers, layers + 1)
        if n > 0
    }
    assert min(distances, key=distances.__getitem__) == layers
