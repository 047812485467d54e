"""FLOPs and bytes from the models themselves."""

import pytest
import torch

from sharedqkv.accounting.bench.entrants import choose_entrants
from sharedqkv.accounting.bench.passes import num_masked
from sharedqkv.accounting.bench.roofline import Peaks, channels_handed_on, floor_of, measure_peaks
from sharedqkv.accounting.bench.settings import Settings

SETTINGS = Settings(size="tiny", length=32, rows=3)
PEAKS = Peaks(flops_per_s=1e9, bytes_per_s=1e8)


def entrants(*variants, peers=()):
    return choose_entrants(variants, ["sdpa"], peers, SETTINGS)


def flops(entrant, kind):
    return floor_of(entrant, kind, SETTINGS, PEAKS).flops


def test_the_encoder_of_standard_costs_what_is_counted_in_hf_bert():
    standard, bert = entrants("standard", peers=["hf_bert"])
    assert floor_of(bert, "forward", SETTINGS, PEAKS) == floor_of(standard, "forward", SETTINGS, PEAKS)


def test_a_training_step_is_three_forward_passes_with_the_head():
    standard, bert = entrants("standard", peers=["hf_bert"])
    head = 3 * 2 * (128 * 128 + 128 * 30522)
    assert flops(standard, "train") == pytest.approx(3 * flops(standard, "forward") + 3 * num_masked(32) * head)
    assert flops(bert, "train") == pytest.approx(3 * flops(bert, "forward") + 3 * 32 * head)


def test_shared_saves_two_products_a_layer():
    standard, shared = entrants("standard", "shared")
    assert flops(standard, "forward") - flops(shared, "forward") == pytest.approx(3 * 32 * 2 * 2 * (2 * 128 * 128))


def test_modernbert_is_counted():
    (modernbert,) = entrants(peers=["modernbert"])
    assert flops(modernbert, "train") > 3 * flops(modernbert, "forward") > 0


def test_what_a_layer_hands_on():
    width, feed_forward = 128, 512
    expected = {"standard": 3, "symmetric": 2, "shared": 1, "tied": 1, "key_value": 2, "overlapping": 5}
    for entrant, tensors in zip(entrants(*expected), expected.values(), strict=True):
        assert channels_handed_on(entrant) == (tensors + 3) * width + feed_forward


def test_bytes_of_a_training_step():
    (entrant,) = entrants("standard")
    values = 3 * 32 * 2 * (6 * 128 + 512) * 4
    expected = (2 * 4 + 32) * entrant.num_parameters() + 5 * values
    assert floor_of(entrant, "train", SETTINGS, PEAKS).moved_bytes == expected


def test_the_floor_is_the_slower_of_the_two():
    (entrant,) = entrants("shared")
    by_flops = floor_of(entrant, "train", SETTINGS, Peaks(1.0, 1e30))
    by_bytes = floor_of(entrant, "train", SETTINGS, Peaks(1e30, 1.0))
    assert by_flops.seconds == by_flops.flops_s == by_flops.flops
    assert by_bytes.seconds == by_bytes.bytes_s == by_bytes.moved_bytes


def test_peaks_are_of_this_device():
    peaks = measure_peaks(torch.device("cpu"), torch.float32, repeats=1)
    assert 1e8 < peaks.flops_per_s < 1e15
    assert 1e7 < peaks.bytes_per_s < 1e13
