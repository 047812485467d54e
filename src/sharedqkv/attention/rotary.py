"""Rotary positions, and the plain form of scales and rotation for backends that know of neither."""

from collections.abc import Callable

import torch
from torch import Tensor

from sharedqkv.attention.base import Projected

Rotation = tuple[Tensor, Tensor]
"""cos and sin, each B1LK; B may be 1."""
Rotate = Callable[[Tensor, Rotation], Tensor]


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


def plain_queries_keys_values(
    projected: Projected, rotation: Rotation | None, rotate_alone: Rotate = rotate
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v with the query and key scales and the rotation applied; the output scale is left to the caller.

    Without a rotation both diagonals go onto q, so that keys and values stay one tensor where they were one.
    A rotation does not commute with them, so each goes onto its own side; `rotate_alone` turns what has no scale.
    """
    q_BHLK, k_BGLK, v_BGLK = projected.q_BHLK, projected.k_BGLK, projected.v_BGLK
    query_scale_HK, key_scale_HK = projected.query_scale_HK, projected.key_scale_HK
    if rotation is None:
        if key_scale_HK is not None:
            query_scale_HK = key_scale_HK if query_scale_HK is None else query_scale_HK * key_scale_HK
        return _scaled(q_BHLK, query_scale_HK), k_BGLK, v_BGLK

    def turned(states: Tensor, scale_HK: Tensor | None) -> Tensor:
        return rotate_alone(states, rotation) if scale_HK is None else rotate(_scaled(states, scale_HK), rotation)

    one_tensor = k_BGLK is q_BHLK and query_scale_HK is None and key_scale_HK is None
    q_BHLK = turned(q_BHLK, query_scale_HK)
    return q_BHLK, q_BHLK if one_tensor else turned(k_BGLK, key_scale_HK), v_BGLK


def _scaled(states_BHLK: Tensor, scale_HK: Tensor | None) -> Tensor:
    # Under autocast the parameters are wider than the states; a promoted product would double the traffic.
    return states_BHLK if scale_HK is None else states_BHLK * scale_HK.unsqueeze(1).to(states_BHLK.dtype)
