"""Who takes part, and what is refused before anything runs."""

import pytest

from sharedqkv.accounting.bench.entrants import choose_entrants, split_entrant
from sharedqkv.accounting.bench.settings import Settings
from sharedqkv.accounting.parameters import count_parameters
from sharedqkv.models.specs import config_from_spec

TINY = Settings(size="tiny", length=8, rows=2)


def choose(*variants, backends=("sdpa",), peers=(), settings=TINY):
    return choose_entrants(variants, backends, peers, settings)


@pytest.mark.parametrize(
    ("text", "spec", "backend", "name"),
    [
        ("standard", "standard", None, "standard:sdpa"),
        ("shared:fused", "shared", "fused", "shared:fused"),
        ("standard@10", "standard:num_hidden_layers=10", None, "standard:sdpa@10"),
        ("shared:fused,bias=true@3", "shared:bias=true,num_hidden_layers=3", "fused", "shared:fused,bias=true@3"),
        ("shared:bias=true,eager", "shared:bias=true", "eager", "shared:eager,bias=true"),
    ],
)
def test_an_entrant_in_one_word(text, spec, backend, name):
    parts = split_entrant(text)
    assert (parts.spec, parts.backend, parts.named(backend or "sdpa")) == (spec, backend, name)


def test_an_entrant_without_a_backend_runs_on_all_of_them():
    names = [entrant.name for entrant in choose("standard", "shared:flex_attention", backends=("sdpa", "eager"))]
    assert names == ["standard:sdpa", "standard:eager", "shared:flex_attention"]


def test_entrants_that_differ_in_the_backend_only_must_agree():
    entrants = choose("standard", "shared", "shared:eager", "shared:eager,bias=true", "shared:eager@1")
    assert [entrant.same_as for entrant in entrants] == [None, None, "shared:sdpa", None, None]


def test_layers_are_those_named_or_else_of_the_settings():
    entrants = choose("standard", "standard@1", peers=("hf_bert",), settings=Settings(size="tiny", layers=3))
    assert [entrant.config.num_hidden_layers for entrant in entrants] == [3, 1, 3]


def test_hf_bert_is_held_to_standard_where_it_is_the_same_function():
    assert choose("shared", "standard", peers=("hf_bert",))[-1].same_as == "standard:sdpa"
    assert choose("shared", peers=("hf_bert",))[-1].same_as is None
    rotary = Settings(size="tiny", positions="rotary")
    assert choose("standard", peers=("hf_bert",), settings=rotary)[-1].same_as is None


def test_peers_are_of_equal_size():
    settings = Settings(size="mini")
    bert, modernbert = choose(peers=("hf_bert", "modernbert"), settings=settings)
    standard = count_parameters(config_from_spec("standard", "mini")).model
    assert bert.num_parameters() == standard
    one_width_more = 64 * 3 * 256 * 4
    assert abs(modernbert.num_parameters() - standard) <= one_width_more / 2
    ours = config_from_spec("standard", "mini")
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
        assert getattr(modernbert.config, name) == getattr(ours, name)


def test_fused_says_when_it_leaves_the_work_to_sdpa():
    standard, shared = choose("standard:fused", "shared:sdpa")
    assert standard.remark == "uses SDPA: keys and values are not one tensor in this variant"
    assert shared.remark is None


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        (["shard"], "unknown attention_variant 'shard'. Did you mean 'shared'"),
        (["shared:sdp"], "shared:sdp: unknown backend 'sdp'; known: eager, .*fused.*sdpa"),
        (["shared:sdpa,eager"], "names several backends"),
        (["shared:biass=true"], "'biass' is neither an option"),
        (["shared@many"], "a number of layers after @, not 'many'"),
        (["shared@0"], "a number of layers after @, not '0'"),
        (["shared", "shared:sdpa"], "shared:sdpa takes part twice"),
        ([], "nobody takes part"),
        (["standard:max_position_embeddings=4"], "--length 8 is over the 4 positions of"),
    ],
)
def test_what_cannot_take_part(variants, message):
    with pytest.raises(ValueError, match=message):
        choose(*variants)


def test_unknown_peers_and_sizes_list_the_known():
    with pytest.raises(ValueError, match="unknown peer 'gpt'; known: hf_bert, modernbert"):
        choose("standard", peers=("gpt",))
    with pytest.raises(ValueError, match="unknown size 'huge'; known: tiny"):
        choose("standard", settings=Settings(size="huge"))


def test_long_rows_have_positions():
    (entrant,) = choose("standard", settings=Settings(size="tiny", length=1000))
    assert entrant.config.max_position_embeddings == 1000
