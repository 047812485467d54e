"""Cases for the kernels: their inputs, the formula in double precision, and SDPA as a model would call it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from sharedqkv.attention.base import Projected
from sharedqkv.attention.rotary import Rotation, plain_queries_keys_values, rotate, rotation_for
from sharedqkv.kernels import Segments, segments_of, shared_kv_attention
from sharedqkv.kernels.op import INTERPRETED, TRITON_INSTALLED

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_kernels = pytest.mark.skipif(
    not TRITON_INSTALLED or (DEVICE == "cpu" and not INTERPRETED),
    reason="the kernels need Triton, and a GPU or TRITON_INTERPRET=1",
)
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="would take hours in Triton's interpreter: needs a GPU")


@dataclass(frozen=True)
class Case:
    """One attention; `same` says that q is s, `mask` is none, padding, documents or random."""

    length: int
    head_size: int = 32
    dtype: torch.dtype = torch.float32
    same: bool = True
    scaled: bool = True
    rotary: bool = False
    mask: str = "none"
    causal: bool = False
    batch: int = 2
    heads: int = 2
    groups: int | None = None
    spread: float = 0.5
    """Of the states. 0.5 is a new model's; at 2 a token that is its own key sees nothing else."""

    def __str__(self) -> str:
        default = Case(self.length)
        return "-".join(
            f"{name}={str(value).removeprefix('torch.')}"
            for name, value in vars(self).items()
            if name == "length" or value != getattr(default, name)
        )


@dataclass
class Inputs:
    """Tensors by name, those that take gradients apart from the others."""

    leaves: dict[str, Tensor]
    rotation: Rotation | None
    segments: Segments | None
    grad: Tensor
    causal: bool

    @classmethod
    def of(cls, case: Case) -> "Inputs":
        """In double precision, but with values the case's dtype can hold."""
        generator = torch.Generator().manual_seed(case.length)

        def values(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator).to(case.dtype).double()

        def states(heads: int) -> Tensor:  # as a projection leaves them, heads split
            states_BLE = case.spread * values(case.batch, case.length, heads * case.head_size)
            return states_BLE.unflatten(-1, (heads, case.head_size)).transpose(1, 2)

        leaves = {"s": states(case.groups or case.heads)}
        if not case.same:
            leaves["q"] = states(case.heads)
        if case.scaled:
            for name in ("query_scale", "key_scale"):
                leaves[name] = 1 + 0.3 * values(case.heads, case.head_size)
        rotation = None
        if case.rotary:
            positions_BL = torch.arange(case.length).expand(case.batch, -1)
            rotation = rotation_for(positions_BL, case.head_size, 100.0, torch.float64)
        grad = values(case.batch, case.length, case.heads, case.head_size)
        inputs = cls(leaves, rotation, _segments(case, generator), grad, case.causal)
        return inputs.to(DEVICE, torch.float64)

    def to(self, device: str, dtype: torch.dtype) -> "Inputs":
        """States in `dtype`; scales and angles as under autocast, in float32 at least."""
        wide = torch.promote_types(dtype, torch.float32)

        def leaf(tensor: Tensor) -> Tensor:
            return tensor.detach().to(device, dtype if tensor.dim() == 4 else wide).requires_grad_()

        return Inputs(
            {name: leaf(tensor) for name, tensor in self.leaves.items()},
            None if self.rotation is None else (self.rotation[0].to(device, wide), self.rotation[1].to(device, wide)),
            None if self.segments is None else Segments(*(ids.to(device) for ids in self.segments)),
            self.grad.to(device, dtype),
            self.causal,
        )

    def projected(self) -> Projected:
        s = self.leaves["s"]
        scales = (self.leaves.get(name) for name in ("query_scale", "key_scale"))
        return Projected(self.leaves.get("q", s), s, s, *scales)

    def visible(self) -> Tensor | None:
        length = self.grad.shape[1]
        mask = None if self.segments is None else self.segments.visible()
        if not self.causal:
            return mask
        lower = torch.ones(length, length, dtype=torch.bool, device=self.grad.device).tril()
        return lower if mask is None else mask & lower


def _segments(case: Case, generator: torch.Generator) -> Segments | None:
    shape = (case.batch, case.length)
    if case.mask == "padding":  # the first row full, the last all padding
        lengths = torch.linspace(case.length, 0, case.batch).long()
        return segments_of(torch.arange(case.length) < lengths[:, None], None)
    if case.mask == "documents":
        return segments_of(None, torch.randint(0, 4, shape, generator=generator).sort(dim=1).values)
    if case.mask == "random":
        mask = torch.randint(0, 2, shape, generator=generator)
        return segments_of(mask, torch.randint(0, 3, shape, generator=generator))
    assert case.mask == "none"
    return None


def by_formula(inputs: Inputs, dropped: Tensor | None = None) -> Tensor:
    """Rows that see nothing give zeros; `dropped` is what dropout multiplies the weights by."""
    projected, s = inputs.projected(), inputs.leaves["s"]
    q, k = projected.q_BHLK, s
    if projected.query_scale_HK is not None:
        q, k = q * projected.query_scale_HK[:, None], k * projected.key_scale_HK[:, None]
    if inputs.rotation is not None:
        q, k = rotate(q, inputs.rotation), rotate(k, inputs.rotation)
    groups = q.shape[1] // s.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), s.repeat_interleave(groups, dim=1)
    logits = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    visible = inputs.visible()
    if visible is not None:
        logits = logits.masked_fill(~visible, torch.finfo(logits.dtype).min)
    weights = torch.softmax(logits, dim=-1)
    if visible is not None:
        weights = weights * visible
    if dropped is not None:
        weights = weights * dropped
    return (weights @ v).transpose(1, 2)


def by_sdpa(inputs: Inputs) -> Tensor:
    projected = inputs.projected()
    q, k, v = plain_queries_keys_values(projected, inputs.rotation)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    visible = inputs.visible()
    blind = None if visible is None else ~visible.any(dim=-1, keepdim=True)
    # Not every SDPA kernel knows rows that see nothing.
    mask = None if visible is None or blind is None else visible | blind
    context = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    if blind is not None:
        context = context.masked_fill(blind, 0)
    return context.transpose(1, 2)


def by_kernel(inputs: Inputs, **options: float) -> Tensor:
    projected = inputs.projected()
    return shared_kv_attention(
        projected.q_BHLK,
        projected.k_BGLK,
        query_scale_HD=projected.query_scale_HK,
        key_scale_HD=projected.key_scale_HK,
        rotation=inputs.rotation,
        segments=inputs.segments,
        causal=inputs.causal,
        **options,
    )


def values_and_gradients(attend: Callable[[Inputs], Tensor], inputs: Inputs) -> dict[str, Tensor]:
    out = attend(inputs)
    gradients = torch.autograd.grad(out, list(inputs.leaves.values()), inputs.grad)
    return {"out": out.detach(), **dict(zip(inputs.leaves, gradients, strict=True))}


def assert_within_twice(
    found: Sequence[Tensor], theirs: Sequence[Tensor], exact: Sequence[Tensor], dtype: torch.dtype
) -> None:
    """Their errors are the yardstick; to them comes the rounding of the largest value to this dtype."""
    for ours, other, expected in zip(found, theirs, exact, strict=True):
        assert ours.dtype == other.dtype
        allowed = 2 * (other - expected).abs().max() + torch.finfo(dtype).eps * expected.abs().max()
        assert (ours - expected).abs().max() <= allowed
