"""Fused attention for keys and values that are one tensor, as a function and as operators `torch.compile` knows."""

import os
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from sharedqkv.attention.rotary import Rotation
from sharedqkv.kernels.segments import Segments

HEAD_SIZES = (32, 64, 128)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TRITON_INSTALLED = find_spec("triton") is not None
# Triton reads it once, when imported.
INTERPRETED = os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


def unsupported(s_BGLD: Tensor) -> str | None:
    """Why the kernels cannot take this tensor, or None if they can."""
    if not TRITON_INSTALLED:
        return "Triton is not installed"
    if s_BGLD.device.type != "cuda" and not (INTERPRETED and s_BGLD.device.type == "cpu"):
        return f"the kernels need an NVIDIA GPU, and the tensors are on {s_BGLD.device.type!r}"
    if s_BGLD.dtype not in DTYPES:
        return f"the kernels know {', '.join(str(dtype) for dtype in DTYPES)}, not {s_BGLD.dtype}"
    if s_BGLD.shape[-1] not in HEAD_SIZES:
        return f"the kernels know head sizes {', '.join(str(size) for size in HEAD_SIZES)}, not {s_BGLD.shape[-1]}"
    return None


def shared_kv_attention(
    q_BHLD: Tensor,
    s_BGLD: Tensor,
    *,
    query_scale_HD: Tensor | None = None,
    key_scale_HD: Tensor | None = None,
    rotation: Rotation | None = None,
    segments: Segments | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scaling: float | None = None,
) -> Tensor:
    """`softmax(rot(q * query_scale) rot(s * key_scale)ᵀ * scaling) s`, as (B, L, H, D).

    Keys and values are s; when q is s too (the very tensor) it is read once for all three. G heads of s serve H heads
    of q in equal groups. `rotation` is cos and sin as from `rotation_for`, `segments` says who sees whom, `scaling` is
    D^-½ unless given. A row that sees no key gives zeros.
    """
    _check(q_BHLD, s_BGLD, rotation, segments, dropout, scaling)
    scales = (query_scale_HD, key_scale_HD)
    if any(scale is not None for scale in scales):
        _check_scales(q_BHLD, s_BGLD, scales)
        ones_HD = torch.ones(q_BHLD.shape[1], q_BHLD.shape[3], device=s_BGLD.device)
        query_scale_HD, key_scale_HD = (ones_HD if scale is None else scale.contiguous() for scale in scales)
        if rotation is None:
            # Nothing stands between the two.
            query_scale_HD, key_scale_HD = query_scale_HD * key_scale_HD, None
    cos_BLD, sin_BLD = (None, None) if rotation is None else (angles.squeeze(1).contiguous() for angles in rotation)
    seed = torch.randint(2**31 - 1, (1,), device=s_BGLD.device) if dropout > 0 else None
    out_BLHD, _ = _forward(
        None if q_BHLD is s_BGLD else _with_channels_adjacent(q_BHLD),
        _with_channels_adjacent(s_BGLD),
        query_scale_HD,
        key_scale_HD,
        cos_BLD,
        sin_BLD,
        None if segments is None else segments.query_ids_BL.contiguous(),
        None if segments is None else segments.key_ids_BL.contiguous(),
        seed,
        q_BHLD.shape[-1] ** -0.5 if scaling is None else scaling,
        causal,
        dropout,
    )
    return out_BLHD


def _with_channels_adjacent(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _check(
    q_BHLD: Tensor,
    s_BGLD: Tensor,
    rotation: Rotation | None,
    segments: Segments | None,
    dropout: float,
    scaling: float | None,
) -> None:
    if q_BHLD.dim() != 4 or s_BGLD.dim() != 4:
        raise ValueError(
            "q and s must be (batch, heads, length, head size), "
            f"not of shape {tuple(q_BHLD.shape)} and {tuple(s_BGLD.shape)}"
        )
    if (reason := unsupported(s_BGLD)) is not None:
        raise ValueError(reason)
    (batch, heads, length, size), groups = q_BHLD.shape, s_BGLD.shape[1]
    if s_BGLD.shape != (batch, groups, length, size) or heads % groups:
        raise ValueError(
            f"q of shape {tuple(q_BHLD.shape)} and s of shape {tuple(s_BGLD.shape)} must agree in all but the heads, "
            "and the heads of s must divide those of q"
        )
    if q_BHLD.dtype != s_BGLD.dtype or q_BHLD.device != s_BGLD.device:
        raise ValueError(
            f"q is {q_BHLD.dtype} on {q_BHLD.device}, s is {s_BGLD.dtype} on {s_BGLD.device}: they must be alike"
        )
    for angles in rotation or ():
        if angles.shape not in ((1, 1, length, size), (batch, 1, length, size)):
            raise ValueError(f"cos and sin must be (1 or {batch}, 1, {length}, {size}), not {tuple(angles.shape)}")
    for name, ids in () if segments is None else zip(("query_ids", "key_ids"), segments, strict=True):
        if ids.shape != (batch, length) or ids.dtype != torch.int32 or ids.device != s_BGLD.device:
            raise ValueError(
                f"{name} must be int32 of shape {(batch, length)} on {s_BGLD.device}, "
                f"not {ids.dtype} of {tuple(ids.shape)} on {ids.device}"
            )
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be in [0, 1), not {dropout}")
    if scaling is not None and scaling <= 0:
        raise ValueError(f"scaling must be positive, not {scaling}")


def _check_scales(q_BHLD: Tensor, s_BGLD: Tensor, scales: tuple[Tensor | None, ...]) -> None:
    if q_BHLD.shape[1] != s_BGLD.shape[1]:
        raise ValueError(f"scales need as many heads of s as of q, not {s_BGLD.shape[1]} and {q_BHLD.shape[1]}")
    expected = (q_BHLD.shape[1], q_BHLD.shape[3])
    for scale in scales:
        if scale is not None and scale.shape != expected:
            raise ValueError(f"scales must be (heads, head size) = {expected}, not {tuple(scale.shape)}")


_ARGUMENTS = (
    "Tensor? q, Tensor s, Tensor? query_scale, Tensor? key_scale, Tensor? cos, Tensor? sin, "
    "Tensor? query_ids, Tensor? key_ids, Tensor? seed, float scaling, bool causal, float dropout"
)


@torch.library.custom_op(
    "sharedqkv::shared_kv_attention", mutates_args=(), schema=f"({_ARGUMENTS}) -> (Tensor out, Tensor lse)"
)
def _forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    from sharedqkv.kernels import launch  # Triton is needed here only

    return launch.forward(launch.Call(*arguments))


@_forward.register_fake
def _(q: Tensor | None, s: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    batch, heads, length, size = s.shape if q is None else q.shape
    return s.new_empty(batch, length, heads, size), s.new_empty(batch, heads, length, dtype=torch.float32)


@torch.library.custom_op(
    "sharedqkv::shared_kv_attention_backward",
    mutates_args=(),
    schema=f"(Tensor grad, Tensor out, Tensor lse, {_ARGUMENTS}) -> (Tensor grad_q, Tensor grad_s, Tensor grad_scales)",
)
def _backward(grad: Tensor, out: Tensor, lse: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    from sharedqkv.kernels import launch

    call = launch.Call(*arguments)
    grad_q, grad_s, grad_scales = launch.backward(call, _with_channels_adjacent(grad), out, lse)
    if grad_q is None:
        grad_q = out.new_empty(0)
    if grad_scales is None:
        grad_scales = lse.new_empty(0)
    return grad_q, grad_s, grad_scales


@_backward.register_fake
def _(
    grad: Tensor,
    out: Tensor,
    lse: Tensor,
    q: Tensor | None,
    s: Tensor,
    query_scale: Tensor | None,
    key_scale: Tensor | None,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, length, size = s.shape
    grad_q = out.new_empty(0) if q is None else torch.empty_like(out)
    scales = 0 if query_scale is None else 1 if key_scale is None else 2
    grad_scales = s.new_empty((heads, scales, size) if scales else 0, dtype=torch.float32)
    return grad_q, s.new_empty(batch, length, heads, size), grad_scales


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scaling, ctx.causal, ctx.dropout = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.mark_non_differentiable(output[1])


def _differentiate(ctx: Any, grad: Tensor, grad_lse: Tensor) -> tuple[Tensor | None, ...]:
    out, lse, *tensors = ctx.saved_tensors
    q, _, query_scale, key_scale = tensors[:4]
    grad_q, grad_s, grad_scales = _backward(grad, out, lse, *tensors, ctx.scaling, ctx.causal, ctx.dropout)
    of_scales = [
        None if scale is None else grad_scales[:, index].to(scale.dtype)
        for index, scale in ((0, query_scale), (1, key_scale))
    ]
    not_differentiable = [None] * 8
    return (
        None if q is None else grad_q.transpose(1, 2), grad_s.transpose(1, 2), *of_scales, *not_differentiable
    )  # fmt: skip


_forward.register_autograd(_differentiate, setup_context=_setup_context)
