"""A whole benchmark on tiny models: who runs when, what is refused, what an interruption leaves."""

import pytest
import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from sharedqkv.accounting.bench import measure as module
from sharedqkv.accounting.bench.entrants import choose_entrants
from sharedqkv.accounting.bench.measure import measure
from sharedqkv.accounting.bench.roofline import Peaks
from sharedqkv.accounting.bench.settings import Settings

SETTINGS = Settings(size="tiny", layers=1, length=8, rows=2, rounds=3, steps=1, warmup=1)


@pytest.fixture(autouse=True)
def no_waiting_for_peaks(monkeypatch):
    monkeypatch.setattr(module, "measure_peaks", lambda *_: Peaks(1e12, 1e11))


@pytest.fixture
def turns(monkeypatch):
    """The entrants in the order in which they are timed."""
    made, order = {}, []
    real_prepare, real_seconds = module._prepare, module.seconds_of

    def prepare(*arguments):
        passes = real_prepare(*arguments)
        made.update({id(run): name for name, run in passes.items()})
        return passes

    def seconds(run, steps):
        order.append(made[id(run)])
        return real_seconds(run, steps)

    monkeypatch.setattr(module, "_prepare", prepare)
    monkeypatch.setattr(module, "seconds_of", seconds)
    return order


def quiet(text):
    pass


def entrants(*variants, peers=(), settings=SETTINGS):
    return choose_entrants(variants, ["sdpa"], peers, settings)


def test_everyone_is_measured_in_turns(turns):
    names = ["standard:sdpa", "shared:sdpa", "shared:eager", "hf_bert", "modernbert"]
    who = entrants("standard", "shared", "shared:eager", peers=["hf_bert", "modernbert"])
    measured = measure(who, ["train", "forward"], SETTINGS, quiet)
    assert turns == 2 * (names + names[::-1] + names)
    assert not measured.interrupted
    for kind in ("train", "forward"):
        found = measured.passes[kind]
        assert list(found.summaries(SETTINGS.tokens)) == names
        assert [len(seconds) for seconds in found.seconds.values()] == [3] * 5
        assert [(a.entrant, a.same_as) for a in found.agreements] == [
            ("shared:eager", "shared:sdpa"),
            ("hf_bert", "standard:sdpa"),
        ]


def broken_attention(module, query, key, value, attention_mask, **kwargs):
    """Right in the forward pass; the gradient of the keys is lost."""
    return sdpa_attention_forward(module, query, key.detach(), value, attention_mask, **kwargs)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_backend_with_a_wrong_gradient_gets_no_speed(dropout, turns, monkeypatch):
    monkeypatch.setitem(AttentionInterface._global_mapping, "broken", broken_attention)
    settings = Settings(size="tiny", layers=1, length=8, rows=2, dropout=dropout)
    who = entrants("standard", "standard:broken", settings=settings)
    with pytest.raises(ValueError, match=r"standard:broken does not compute .*: bert\.encoder.*key\.weight differs"):
        measure(who, ["train"], settings, quiet)
    assert turns == []


def test_an_interruption_leaves_the_whole_rounds():
    def interrupt_in_the_last_round(text):
        if "forward: round 2" in text:
            raise KeyboardInterrupt

    who = entrants("standard", "shared")
    measured = measure(who, ["train", "forward"], SETTINGS, interrupt_in_the_last_round)
    assert measured.interrupted
    assert len(measured.passes["train"].seconds["shared:sdpa"]) == 3
    assert len(measured.passes["forward"].seconds["shared:sdpa"]) == 2


def test_a_round_in_which_not_all_had_their_turn_does_not_count(monkeypatch):
    seconds = iter([1.0, 2.0, 1.0])

    def interrupted_in_the_fourth_turn(run, steps):
        try:
            return next(seconds)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(module, "seconds_of", interrupted_in_the_fourth_turn)
    measured = measure(entrants("standard", "shared"), ["train", "forward"], SETTINGS, quiet)
    summaries = measured.passes["train"].summaries(SETTINGS.tokens)
    assert {name: summary.median_s for name, summary in summaries.items()} == {"standard:sdpa": 1.0, "shared:sdpa": 2.0}
    assert "forward" not in measured.passes


def test_too_little_memory_is_told_with_a_remedy(monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 EiB")

    monkeypatch.setattr(module, "_prepare", full)
    with pytest.raises(ValueError, match="too little memory for --rows 2 of --length 8: take fewer rows"):
        measure(entrants("standard"), ["train"], SETTINGS, quiet)
