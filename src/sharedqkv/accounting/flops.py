"""Forward FLOPs per token: matrix products only, a multiply-add counted as 2, counted by running the real model.

Element-wise work (diagonals, LayerNorm, softmax, GELU) is left out, as is usual; it costs bytes, not FLOPs.
"""

import torch
from torch.utils.flop_counter import FlopCounterMode

from sharedqkv.accounting.parameters import build_on_meta
from sharedqkv.models import SharedQKVConfig

MASKED_SHARE = 0.15
"""Share of the tokens the MLM head runs on in pre-training."""


def forward_flops_per_token(config: SharedQKVConfig, length: int, masked_share: float = MASKED_SHARE) -> float:
    """Encoder on `length` tokens and MLM head on a share of them, divided by `length`."""
    if length > config.max_position_embeddings:
        raise ValueError(f"length {length} is over max_position_embeddings {config.max_position_embeddings}")
    model = build_on_meta(config).eval().requires_grad_(False)
    token_ids = torch.zeros((1, length), dtype=torch.long, device="meta")
    encoder = _count(model.bert, token_ids)
    # The head costs the same for every token, so one stands for a share that is no whole number.
    head = _count(model.cls.predictions, torch.zeros((1, 1, config.hidden_size), device="meta"))
    return encoder / length + masked_share * head


def flops_formula(config: SharedQKVConfig, length: int, masked_share: float = MASKED_SHARE) -> float:
    """The same from the variants' algebra; a test holds the two together."""
    with torch.device("meta"):
        variant = config.build_attention_variant()
    width = config.hidden_size
    products = 2 * length * (variant.num_heads * variant.head_size + variant.context_width)
    output = 2 * variant.context_width * width
    feed_forward = 2 * 2 * width * config.intermediate_size
    layer = variant.projection_flops() + products + output + feed_forward
    head = 2 * (width * width + width * config.vocab_size)
    return config.num_hidden_layers * layer + masked_share * head


def _count(module: torch.nn.Module, inputs: torch.Tensor) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(inputs)
    return counter.get_total_flops()
