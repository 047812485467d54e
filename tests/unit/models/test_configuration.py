"""Promise 7, first half: a bad configuration is an error before anything is built."""

import json

import pytest
from helpers import tiny_config
from transformers import AutoConfig

from sharedqkv import SharedQKVConfig, SharedQKVModel
from sharedqkv.models import SIZES


@pytest.mark.parametrize("size", SIZES)
def test_sizes(size):
    config = SharedQKVConfig.from_size(size, attention_variant="shared")
    assert config.intermediate_size == 4 * config.hidden_size
    assert config.hidden_size // config.num_attention_heads == 64
    assert config.attention_variant == "shared"


def test_unknown_size():
    with pytest.raises(ValueError, match="unknown size 'huge'; known: tiny, mini, small, medium, base, large"):
        SharedQKVConfig.from_size("huge")


def test_options_survive_json(tmp_path):
    config = SharedQKVConfig.from_size(
        "tiny", attention_variant="grouped", attention_options={"num_key_value_heads": 2}
    )
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(loaded, SharedQKVConfig)
    assert loaded.attention_options == {"num_key_value_heads": 2}
    assert loaded.to_diff_dict() == config.to_diff_dict()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"attention_variant": "shard"}, "unknown attention_variant 'shard'. Did you mean 'shared'"),
        ({"num_attention_heads": 5}, "hidden_size 32 is not divisible by num_attention_heads 5"),
        ({"num_attention_heads": 0}, "num_attention_heads must be at least 1, not 0"),
        (
            {"num_hidden_layer": 3},
            r"unknown configuration keys \['num_hidden_layer'\]. Did you mean 'num_hidden_layers'",
        ),
        (
            {"position_embedding_type": "relative_key"},
            "position_embedding_type must be one of absolute, rotary, not 'rel",
        ),
        ({"norm_placement": "middle"}, "norm_placement must be one of post, pre, not 'middle'"),
        ({"hidden_act": "gellu"}, "hidden_act must be one of .*gelu.*, not 'gellu'"),
        ({"hidden_dropout_prob": 1.0}, r"hidden_dropout_prob must be in \[0, 1\), not 1.0"),
        ({"pad_token_id": 99}, r"pad_token_id must be in \[0, 40\), not 99"),
        ({"is_decoder": True}, "is_decoder=True is not supported: sharedqkv models are encoders"),
        ({"chunk_size_feed_forward": 8}, "chunk_size_feed_forward must be 0"),
        ({"initializer_range": 0.0}, "initializer_range must be positive"),
        ({"attention_options": {"bias": True}}, r"unknown attention_options \['bias'\] for variant 'standard'"),
        ({"rotary_base": 0.5}, "rotary_base must be greater than 1"),
        (
            {"hidden_size": 20, "num_attention_heads": 4, "position_embedding_type": "rotary"},
            "rotary positions turn channels in pairs, and the head size is 5",
        ),
    ],
)
def test_bad_values_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        tiny_config(**{"variant": wrong.pop("attention_variant", "standard"), **wrong})


@pytest.mark.parametrize(
    ("name", "value"),
    [("hidden_size", "32"), ("attention_options", ["bias"]), ("attention_variant", 3), ("vocab_size", 1.5)],
)
def test_wrong_types_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be of type"):
        SharedQKVConfig(**{name: value})


def test_overrides_while_loading_are_checked_too(tmp_path):
    tiny_config().save_pretrained(tmp_path)
    assert SharedQKVConfig.from_pretrained(tmp_path, attention_variant="tied").attention_variant == "tied"
    for wrong in ({"attention_variant": "shard"}, {"norm_placement": "middle"}, {"num_attention_heads": 5}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            SharedQKVConfig.from_pretrained(tmp_path, **wrong)


def test_changed_configs_are_checked_again_by_the_model():
    config = tiny_config()
    config.attention_variant = "shard"
    with pytest.raises(ValueError, match="unknown attention_variant 'shard'"):
        SharedQKVModel(config)


def test_models_of_other_kinds_are_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "vocab_size": 40}))
    with pytest.raises(ValueError, match="a model of type 'gpt2'; sharedqkv loads 'sharedqkv' and 'bert'"):
        SharedQKVConfig.from_pretrained(tmp_path)


def test_a_config_of_another_class_is_refused():
    from transformers import BertConfig

    with pytest.raises(TypeError, match="SharedQKVModel needs a SharedQKVConfig, not a BertConfig"):
        SharedQKVModel(BertConfig())
