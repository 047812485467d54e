"""Rotary positions, and the plain form of scales and rotation for backends that know of neither."""

from typing import Any

import torch
from torch import Tensor

from sharedqkv.attention.base import HALF, Projected, kernels_know

Rotation = tuple[Tensor, Tensor]
"""cos and sin, each B1LK; B may be 1."""


def rotation_for(positions_BL: Tensor, head_size: int, base: float, dtype: torch.dtype) -> Rotation:
    # A compiler that sees how angles are made makes them anew for every element of q and k in every layer.
    # Not asked is `is_exporting`: to compiled code torch 2.11 says yes. An export, unless strict, does without dynamo.
    make = _hidden_rotation if torch.compiler.is_dynamo_compiling() else _rotation
    return make(positions_BL, head_size, base, dtype)


def _rotation(positions_BL: Tensor, head_size: int, base: float, dtype: torch.dtype) -> Rotation:
    precise = torch.promote_types(dtype, torch.float32)
    exponents = torch.arange(0, head_size, 2, device=positions_BL.device, dtype=precise) / head_size
    angles_BLk = positions_BL[..., None].to(precise) * base**-exponents
    angles_B1LK = torch.cat((angles_BLk, angles_BLk), dim=-1).unsqueeze(1)
    return angles_B1LK.cos().to(dtype), angles_B1LK.sin().to(dtype)


_hidden_rotation = torch.library.custom_op("sharedqkv::rotation", _rotation, mutates_args=())


@_hidden_rotation.register_fake
def _(positions_BL: Tensor, head_size: int, base: float, dtype: torch.dtype) -> Rotation:
    batch, length = positions_BL.shape
    cos = positions_BL.new_empty((batch, 1, length, head_size), dtype=dtype)
    return cos, torch.empty_like(cos)


def rotate(states_BHLK: Tensor, rotation: Rotation) -> Tensor:
    """As the usual `states * cos + cat(-second half, first half) * sin`, but a compiler makes it one pass."""
    # Under autocast the angles are wider than the states; see below.
    cos, sin = (angles.to(states_BHLK.dtype) for angles in rotation)
    first, second = sin.chunk(2, dim=-1)
    turned = states_BHLK.unflatten(-1, (2, -1)).flip(-2).flatten(-2)
    return states_BHLK * cos + turned * torch.cat((-first, second), dim=-1)


@torch.library.custom_op("sharedqkv::rotate", mutates_args=())
def rotate_in_one_pass(states_BHLK: Tensor, cos: Tensor, sin: Tensor, back: bool) -> Tensor:
    """As `rotate`, on a GPU; `back` turns the other way, as gradients are."""
    from sharedqkv.kernels import rotation_kernels

    return rotation_kernels.rotate(states_BHLK, cos, sin, back)


@rotate_in_one_pass.register_fake
def _(states_BHLK: Tensor, cos: Tensor, sin: Tensor, back: bool) -> Tensor:
    batch, heads, length, size = states_BHLK.shape
    return states_BHLK.new_empty(batch, length, heads, size).transpose(1, 2)


@rotate_in_one_pass.register_vmap
def _(info: Any, in_dims: Any, states: Tensor, cos: Tensor, sin: Tensor, back: bool) -> tuple[Tensor, int]:
    """The models M of a stack are one batch."""

    def stacked(tensor: Tensor, dim: int | None) -> Tensor:
        return tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)

    states_MBHLK = stacked(states, in_dims[0])
    if len(cos) > 1 or in_dims[1] is not None:
        batch = states_MBHLK.shape[1]
        cos, sin = (
            stacked(angles, dim).expand(-1, batch, -1, -1, -1).flatten(0, 1)
            for angles, dim in zip((cos, sin), in_dims[1:3], strict=True)
        )
    rotated = rotate_in_one_pass(states_MBHLK.flatten(0, 1), cos, sin, back)
    return rotated.unflatten(0, states_MBHLK.shape[:2]), 0


def _keep_angles(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, cos, sin, ctx.back = inputs
    ctx.save_for_backward(cos, sin)


def _rotate_back(ctx: Any, grad_BHLK: Tensor) -> tuple[Tensor, None, None, None]:
    return rotate_in_one_pass(grad_BHLK, *ctx.saved_tensors, not ctx.back), None, None, None


rotate_in_one_pass.register_autograd(_rotate_back, setup_context=_keep_angles)


def _rotate_alone(states_BHLK: Tensor, rotation: Rotation) -> Tensor:
    """For states that nothing else is done to. Without a compiler it would be nine passes, and a compiler would rotate
    gradients where it lays those of queries, keys and values side by side, and spend its time on where it is."""
    if kernels_know(states_BHLK, (*HALF, torch.float32)):
        return rotate_in_one_pass(states_BHLK, *rotation, False)
    return rotate(states_BHLK, rotation)


def plain_queries_keys_values(projected: Projected, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v with the query and key scales and the rotation applied; the output scale is left to the caller.

    Without a rotation both diagonals go onto q, so that keys and values stay one tensor where they were one.
    A rotation does not commute with them, so each goes onto its own side.
    """
    q_BHLK, k_BGLK, v_BGLK = projected.q_BHLK, projected.k_BGLK, projected.v_BGLK
    query_scale_HK, key_scale_HK = projected.query_scale_HK, projected.key_scale_HK
    if rotation is None and key_scale_HK is not None:
        query_scale_HK = key_scale_HK if query_scale_HK is None else query_scale_HK * key_scale_HK
        key_scale_HK = None
    if query_scale_HK is not None:
        # Under autocast the parameters are wider than the states; a promoted product would double the traffic.
        q_BHLK = q_BHLK * query_scale_HK.unsqueeze(1).to(q_BHLK.dtype)
    if key_scale_HK is not None:
        k_BGLK = k_BGLK * key_scale_HK.unsqueeze(1).to(k_BGLK.dtype)
    if rotation is not None:
        one_tensor = k_BGLK is q_BHLK
        q_BHLK = (_rotate_alone if query_scale_HK is None else rotate)(q_BHLK, rotation)
        k_BGLK = q_BHLK if one_tensor else (_rotate_alone if key_scale_HK is None else rotate)(k_BGLK, rotation)
    return q_BHLK, k_BGLK, v_BGLK
