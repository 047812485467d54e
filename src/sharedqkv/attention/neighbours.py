"""A start for rotary attention: biases on queries and keys with which heads first look mostly at one neighbour each.

Before training, content tells attention nothing, so that it mixes all tokens alike or, where one tensor makes queries
and keys, looks at itself. A bias on q and one on k meet in a term of position alone: with b_k in every plane of the
rotation and b_q the same turned by n tokens, it is largest n tokens away. With learned positions it is a constant,
which softmax does not see.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization

from sharedqkv.attention.base import Geometry, Projected, Variant

STRENGTH = 4.0
"""Of the logit at the neighbour. With 64 channels 3.2 are left a token from it; farther away it swings around 0."""
BASE = 10_000.0
"""Of the rotation: the default of `rotary_base`. With another one heads start elsewhere."""


def neighbour_biases(num_heads: int, head_size: int) -> tuple[Tensor, Tensor]:
    """Of the queries (H, K), and of the keys (K), the same for all heads: they look 1, -1, 2, -2 ... tokens away.

    Fast planes weigh more, as much as they turn: all alike, the slow ones would make a neighbourhood of hundreds. The
    odd channel of an odd head is in no plane and has none.
    """
    speeds_k = BASE ** -(torch.arange(0, head_size - 1, 2) / head_size)
    sizes_k = (STRENGTH * head_size**0.5 * speeds_k / speeds_k.sum()).sqrt()
    offsets_H = torch.tensor([(head // 2 + 1) * (-1.0) ** head for head in range(num_heads)])
    angles_Hk = offsets_H[:, None] * speeds_k
    queries = torch.cat((sizes_k * angles_Hk.cos(), sizes_k * angles_Hk.sin()), dim=-1)
    keys = torch.cat((sizes_k, torch.zeros_like(sizes_k)))
    odd = (0, head_size % 2)
    return nn.functional.pad(queries, odd), nn.functional.pad(keys, odd)


class LooksNear(Variant):
    """In front of a variant: what it makes, with such biases."""

    made_for_rotary = True
    speed = 1.0
    """How many times as fast the biases learn: Adam moves every weight about as far a step, however large it is."""

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__(geometry, options)
        self.query_bias = nn.Parameter(torch.empty(self.num_heads * self.head_size))
        self.key_bias = nn.Parameter(torch.empty(self.num_key_value_heads * self.head_size))

    def init_weights(self, std: float) -> None:
        super().init_weights(std)
        queries_HK, keys_K = neighbour_biases(self.num_heads, self.head_size)
        initialization.copy_(self.query_bias, queries_HK.flatten() / self.speed)
        initialization.copy_(self.key_bias, keys_K.repeat(self.num_key_value_heads) / self.speed)

    def forward(self, hidden_BLD: Tensor) -> Projected:
        projected = super().forward(hidden_BLD)
        q_BHLK = moved(projected.q_BHLK, projected.query_scale_HK, self.query_bias * self.speed)
        k_BGLK = moved(projected.k_BGLK, projected.key_scale_HK, self.key_bias * self.speed)
        return Projected(q_BHLK, k_BGLK, projected.v_BGLK, output_scale_HK=projected.output_scale_HK)

    def fold(self, output: nn.Linear, rotary: bool) -> None:
        """A bias stands between the diagonals of queries and keys as a rotation does."""
        super().fold(output, rotary=True)

    def parameter_formula(self) -> int:
        return super().parameter_formula() + self.query_bias.numel() + self.key_bias.numel()


def moved(states_BHLK: Tensor, scale_HK: Tensor | None, bias: Tensor) -> Tensor:
    # Under autocast parameters are wider than the states; promoted states would double the traffic.
    dtype, head_size = states_BHLK.dtype, states_BHLK.shape[-1]
    if scale_HK is not None:
        states_BHLK = states_BHLK * scale_HK[:, None].to(dtype)
    return states_BHLK + bias.view(-1, 1, head_size).to(dtype)
