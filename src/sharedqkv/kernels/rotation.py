"""The rotation of rotary positions in one pass over memory.

Without a compiler it would be nine passes. A compiler rotates the gradients of queries and keys where it lays them
beside those of the values, and spends its time on index arithmetic.
"""

from typing import Any

import torch
from torch import Tensor

from sharedqkv.attention.rotary import Rotation, rotate
from sharedqkv.kernels.hardware import HALF, kernels_know


def rotate_alone(states_BHLK: Tensor, rotation: Rotation) -> Tensor:
    """For states that nothing else is done to; a compiler scales and rotates in one pass itself."""
    if kernels_know(states_BHLK, (*HALF, torch.float32)) and _gradients_are_plain():
        return rotate_in_one_pass(states_BHLK, *rotation, False)
    return rotate(states_BHLK, rotation)


@torch.compiler.assume_constant_result
def _gradients_are_plain() -> bool:
    """Torch takes our operator's gradient in backward(), also under vmap; in forward mode it would find none, and
    `torch.func.grad` would refuse."""
    vmap = torch._C._functorch.TransformType.Vmap
    transforms = torch._C._functorch.get_interpreter_stack() or []
    return torch.autograd.forward_ad._current_level < 0 and all(transform.key() == vmap for transform in transforms)


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
    if len(cos) > 1 or in_dims[1:3] != (None, None):
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
