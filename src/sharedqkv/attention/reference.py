"""Attention written out as the papers state it, one row, one head, one formula at a time.

Slow on purpose and sharing no code with the variants: tests hold every variant and backend to it. A variant from
outside the package brings its own formula with `register_reference`.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from sharedqkv.attention.base import Variant
from sharedqkv.attention.registry import get_variant

Weights = Mapping[str, Tensor]
HeadFormula = Callable[[Weights, Tensor, int, Variant], tuple[Tensor, Tensor, Tensor]]
"""(weights by name, hidden states L×D, head, variant) → q, k, v of that head, each L×K."""

_FORMULAS: dict[str, HeadFormula] = {}


def register_reference(name: str) -> Callable[[HeadFormula], HeadFormula]:
    def register(formula: HeadFormula) -> HeadFormula:
        _FORMULAS[name] = formula
        return formula

    return register


def reference_attention(
    name: str,
    variant: Variant,
    hidden_BLD: Tensor,
    visible_BLL: Tensor | None = None,
    positions_BL: Tensor | None = None,
    rotary_base: float | None = None,
) -> Tensor:
    """The attention output before Wo. `visible[b, i, j]` says that token i may look at token j."""
    if get_variant(name) is not type(variant):
        raise ValueError(f"variant {name!r} is not a {type(variant).__name__}")
    if name not in _FORMULAS:
        raise ValueError(f"variant {name!r} has no reference; give it one with register_reference({name!r})")
    weights = dict(variant.named_parameters())
    rows = []
    for b, hidden_LD in enumerate(hidden_BLD):
        heads = []
        for head in range(variant.num_heads):
            q, k, v = _FORMULAS[name](weights, hidden_LD, head, variant)
            if rotary_base is not None:
                positions = torch.arange(len(hidden_LD)) if positions_BL is None else positions_BL[b]
                q, k = rotate_as_complex(q, positions, rotary_base), rotate_as_complex(k, positions, rotary_base)
            heads.append(_softmax_attention(q, k, v, None if visible_BLL is None else visible_BLL[b]))
        rows.append(torch.cat(heads, dim=-1))
    return torch.stack(rows)


def _softmax_attention(q_LK: Tensor, k_LK: Tensor, v_LK: Tensor, visible_LL: Tensor | None) -> Tensor:
    outputs = []
    for i, query in enumerate(q_LK):
        seen = slice(None) if visible_LL is None else visible_LL[i]
        logits = k_LK[seen] @ query / query.numel() ** 0.5
        weights = torch.exp(logits - logits.detach().max())
        outputs.append((weights / weights.sum()) @ v_LK[seen])
    return torch.stack(outputs)


def rotate_as_complex(states_LK: Tensor, positions_L: Tensor, base: float) -> Tensor:
    """Channel i and channel i + K/2 are one complex number, turned by position · base^(-2i/K)."""
    half = states_LK.shape[-1] // 2
    speed = torch.tensor([base ** (-2 * i / (2 * half)) for i in range(half)], dtype=states_LK.dtype)
    turn = torch.polar(torch.ones(()).to(states_LK.dtype), positions_L.to(states_LK.dtype)[:, None] * speed)
    turned = torch.complex(states_LK[:, :half].contiguous(), states_LK[:, half:].contiguous()) * turn
    return torch.cat((turned.real, turned.imag), dim=-1)


def _linear(weights: Weights, name: str, hidden_LD: Tensor) -> Tensor:
    result = hidden_LD @ weights[f"{name}.weight"].T
    bias = weights.get(f"{name}.bias")
    return result if bias is None else result + bias


def _slice(states_LE: Tensor, head: int, variant: Variant) -> Tensor:
    return states_LE[:, head * variant.head_size : (head + 1) * variant.head_size]


def _three_projections(w: Weights, x: Tensor, head: int, variant: Variant) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (_slice(_linear(w, name, x), head, variant) for name in ("query", "key", "value"))
    return q, k, v


register_reference("standard")(_three_projections)
register_reference("narrow")(_three_projections)


@register_reference("symmetric")
def _symmetric(w: Weights, x: Tensor, head: int, variant: Variant) -> tuple[Tensor, Tensor, Tensor]:
    q = _slice(_linear(w, "query", x), head, variant)
    return q, q, _slice(_linear(w, "value", x), head, variant)


@register_reference("pairwise")
def _pairwise(w: Weights, x: Tensor, head: int, variant: Variant) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = _symmetric(w, x, head, variant)
    return q @ w["pairing"][head], k, v


@register_reference("shared")
def _shared(w: Weights, x: Tensor, head: int, variant: Variant) -> tuple[Tensor, Tensor, Tensor]:
    s = _linear(w, "shared", x)
    ones = torch.ones_like(s[0])  # for a diagonal that was folded away
    scales = (w["query_scale"], w.get("key_scale", ones), w.get("value_scale", ones))
    q, k, v = (_slice(s @ torch.diag(scale), head, variant) for scale in scales)
    return q, k, v


@register_reference("tied")
def _tied(w: Weights, x: Tensor, head: int, variant: Variant) -> tuple[Tensor, Tensor, Tensor]:
    s = _slice(_linear(w, "shared", x), head, variant)
    return s, s, s


@register_reference("key_value")
def _key_value(w: Weights, x: Tensor, head: int, variant: Variant) -> tuple[Tensor, Tensor, Tensor]:
    s = _slice(_linear(w, "key_value", x), head, variant)
    return _slice(_linear(w, "query", x), head, variant), s, s


@register_reference("low_rank")
def _low_rank(w: Weights, x: Tensor, head: int, variant: Variant) -> tuple[Tensor, Tensor, Tensor]:
    def project(name: str) -> Tensor:
        product = w[f"{name}.up.weight"] @ w[f"{name}.down.weight"]
        return _slice(x @ product.T + w[f"{name}.up.bias"], head, variant)

    return project("query"), project("key"), project("value")


@register_reference("grouped")
def _grouped(w: Weights, x: Tensor, head: int, variant: Variant) -> tuple[Tensor, Tensor, Tensor]:
    group = head * variant.num_key_value_heads // variant.num_heads
    tied = "key_value.weight" in w
    k = _slice(_linear(w, "key_value" if tied else "key", x), group, variant)
    v = _slice(_linear(w, "key_value" if tied else "value", x), group, variant)
    return _slice(_linear(w, "query", x), head, variant), k, v


@register_reference("rolled")
def _rolled(w: Weights, x: Tensor, head: int, variant: Variant) -> tuple[Tensor, Tensor, Tensor]:
    s = _linear(w, "shared", x)

    def scaled(name: str, source: int) -> Tensor:
        scale = _slice(w.get(name, torch.ones_like(s[0]))[None], head, variant)
        return _slice(s, source % variant.num_heads, variant) * scale

    return scaled("query_scale", head + 1), scaled("key_scale", head), scaled("value_scale", head + 2)


@register_reference("overlapping")
def _overlapping(w: Weights, x: Tensor, head: int, variant: Variant) -> tuple[Tensor, Tensor, Tensor]:
    slices, speed, heads = variant.options.slices, variant.options.speed, variant.num_heads
    width = x.shape[1] // heads
    s = _linear(w, "shared", x)

    def columns(source: int) -> list[int]:
        return [width * (source % heads) + channel for channel in range(width)]

    def wide(role: str) -> Tensor:
        many = s[:, [column for step in range(slices) for column in columns(head + step)]]
        return many @ torch.diag(speed * w[f"{role}_scale"][head]) + speed * w[f"{role}_bias"].view(heads, -1)[head]

    v = s[:, columns(head)]
    if "value_scale" in w:  # or it was folded away
        v = v @ torch.diag(speed * w["value_scale"][columns(head)])
    return wide("query"), wide("key"), v
