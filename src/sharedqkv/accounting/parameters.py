"""How many parameters there are, counted on real modules that hold no memory."""

from dataclasses import dataclass

import torch

from sharedqkv.models import SharedQKVConfig, SharedQKVForMaskedLM


@dataclass(frozen=True)
class ParameterCount:
    qkv: int
    """What makes q, k and v, in one layer."""
    attention_block: int
    """The same and the output projection Wo with its bias, in one layer."""
    model: int
    """The whole model with its MLM head, tied weights once."""


def build_on_meta(config: SharedQKVConfig) -> SharedQKVForMaskedLM:
    with torch.device("meta"):
        return SharedQKVForMaskedLM(config)


def count_parameters(config: SharedQKVConfig) -> ParameterCount:
    model = build_on_meta(config)
    attention = model.bert.encoder.attentions()[0]
    qkv = _count(attention.self)
    return ParameterCount(qkv, qkv + _count(attention.output.dense), _count(model))


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
