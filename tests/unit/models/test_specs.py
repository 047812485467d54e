import pytest

from sharedqkv.models.specs import config_from_spec


def test_options_and_fields_are_told_apart():
    config = config_from_spec("grouped:num_key_value_heads=2,num_hidden_layers=10,tie_key_value=true", "base")
    assert config.attention_options == {"num_key_value_heads": 2, "tie_key_value": True}
    assert config.num_hidden_layers == 10
    assert config.hidden_size == 768


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("shard", "unknown attention_variant 'shard'"),
        ("shared:bias", "'bias' is not of the form key=value"),
        ("shared:colour=red", r"'colour' is neither an option of 'shared' \(it has \['bias', 'diagonals', 'init'\]\)"),
        ("standard:bias=true", r"'bias' is neither an option of 'standard' \(it has none\)"),
        ("standard:attention_variant=shared", "'attention_variant' is neither an option of 'standard'"),
        ("shared:bias=maybe", "'bias' must be true or false, not 'maybe'"),
    ],
)
def test_bad_specs_are_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        config_from_spec(spec, "tiny")


@pytest.mark.parametrize("spec", ["shared:init=twos", "standard:hidden_size=7"])
def test_a_wrong_value_is_told_with_its_spec(spec):
    """Of several on a command line, which one is it?"""
    with pytest.raises(ValueError, match=f"^'{spec}': "):
        config_from_spec(spec, "tiny")
