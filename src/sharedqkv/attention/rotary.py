"""Rotary positions, and the plain form of scales and rotation for backends that know of neither."""

import torch
from torch import Tensor

from sharedqkv.attention.base import Projected

Rotation = tuple[Tensor, Tensor]
"""cos and sin, each B1LK; B may be 1."""


def rotation_for(positions_BL: Tensor, head_size: int, base: float, dtype: torch.dtype) -> Rotation:
    precise = torch.promote_types(dtype, torch.float32)
    exponents = torch.arange(0, head_size, 2, device=positions_BL.device, dtype=precise) / head_size
    angles_BLk = positions_BL[..., None].to(precise) * base**-exponents
    angles_B1LK = torch.cat((angles_BLk, angles_BLk), dim=-1).unsqueeze(1)
    return angles_B1LK.cos().to(dtype), angles_B1LK.sin().to(dtype)


def rotate(states_BHLK: Tensor, rotation: Rotation) -> Tensor:
    # Under autocast the angles are wider than the states; see below.
    cos, sin = (angles.to(states_BHLK.dtype) for angles in rotation)
    first, second = states_BHLK.chunk(2, dim=-1)
    return states_BHLK * cos + torch.cat((-second, first), dim=-1) * sin


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
        q_BHLK, k_BGLK = rotate(q_BHLK, rotation), rotate(k_BGLK, rotation)
    return q_BHLK, k_BGLK, v_BGLK
