"""The least time a pass can take on a device: by its FLOPs, and by the bytes that must move.

Peaks are measured on the spot, so that they hold for any device. Bytes are counted for an implementation with one
kernel a matrix product and everything else free: docs/bench.md has the model in words.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from sharedqkv.accounting.bench.entrants import Entrant
from sharedqkv.accounting.bench.passes import num_masked, seconds_of
from sharedqkv.accounting.bench.settings import Settings
from sharedqkv.accounting.flops import flops_formula
from sharedqkv.models import SharedQKVConfig

OPTIMIZER_BYTES = 4 * (1 + 4 + 3)
"""A parameter in fp32: its gradient written; weight, gradient and Adam's two moments read, all but the gradient
written."""


@dataclass(frozen=True)
class Peaks:
    """The most a device does, as measured."""

    flops_per_s: float
    bytes_per_s: float


@dataclass(frozen=True)
class Floor:
    flops: float
    moved_bytes: float
    flops_s: float
    bytes_s: float

    @property
    def seconds(self) -> float:
        return max(self.flops_s, self.bytes_s)


def measure_peaks(device: torch.device, dtype: torch.dtype, repeats: int = 10) -> Peaks:
    """By a large matrix product and a large copy; the fastest of some repeats."""
    on_gpu = device.type == "cuda"
    width = 8192 if on_gpu else 1024
    left, right = (torch.randn(width, width, device=device).to(dtype) for _ in range(2))
    product_s = _fastest(lambda: torch.mm(left, right), repeats)
    source = torch.ones(2**28 if on_gpu else 2**25, device=device)
    target = torch.empty_like(source)
    copy_s = _fastest(lambda: target.copy_(source), repeats)
    return Peaks(2 * width**3 / product_s, 2 * source.numel() * source.element_size() / copy_s)


def _fastest(run: Callable[[], Any], repeats: int) -> float:
    seconds_of(run, 2)
    return min(seconds_of(run, 5) for _ in range(repeats))


def floor_of(entrant: Entrant, kind: str, settings: Settings, peaks: Peaks) -> Floor:
    flops = _forward_flops(entrant, kind, settings) * (3 if kind == "train" else 1)
    moved = _moved_bytes(entrant, kind, settings)
    return Floor(flops, moved, flops / peaks.flops_per_s, moved / peaks.bytes_per_s)


def _forward_flops(entrant: Entrant, kind: str, settings: Settings) -> float:
    length = settings.length
    if isinstance(entrant.config, SharedQKVConfig):
        masked_share = num_masked(length) / length if kind == "train" else 0.0
        return settings.tokens * flops_formula(entrant.config, length, masked_share)
    # Eager attention: the same products, and no kernel that the counter might not know.
    model = entrant.build_on_meta(backend="eager").eval()
    module = model if kind == "train" else model.base_model
    with torch.device("meta"), FlopCounterMode(display=False) as counter, torch.no_grad():
        module(input_ids=torch.zeros((1, length), dtype=torch.long))
    return settings.rows * counter.get_total_flops()


def _moved_bytes(entrant: Entrant, kind: str, settings: Settings) -> float:
    itemsize = 2 if settings.bf16 else 4
    values = itemsize * settings.tokens * entrant.config.num_hidden_layers * channels_handed_on(entrant)
    if kind == "forward":
        encoder = entrant.build_on_meta().base_model
        read = sum(p.numel() for p in encoder.parameters()) - encoder.get_input_embeddings().weight.numel()
        return itemsize * read + 2 * values
    return (2 * itemsize + OPTIMIZER_BYTES) * entrant.num_parameters() + 5 * values


def channels_handed_on(entrant: Entrant) -> int:
    """What the products of a layer hand to each other, for one token."""
    config = entrant.config
    width = config.hidden_size
    feed_forward = config.intermediate_size
    if config.model_type == "modernbert":
        feed_forward *= 2  # a gate beside the values
    projected, context = 3 * width, width
    if isinstance(config, SharedQKVConfig):
        with torch.device("meta"):
            variant = config.build_attention_variant()
            made = variant(torch.zeros(1, 1, width))
        projected = sum({id(tensor): tensor.numel() for tensor in (made.q_BHLK, made.k_BGLK, made.v_BGLK)}.values())
        context = variant.context_width
    return projected + context + width + feed_forward + width
