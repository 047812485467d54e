"""What every variant is: a module from hidden states to the tensors attention needs.

Shape suffixes: B batch, L length, D model width, H heads, G key/value heads, K head size (of queries and keys where
values have another).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Geometry:
    """What a variant is told about the model it sits in."""

    width: int
    num_heads: int

    @property
    def head_size(self) -> int:
        return self.width // self.num_heads


@dataclass
class Projected:
    """Queries, keys and values, with the diagonals that a backend may apply where it is cheapest.

    The attention meant is `softmax(rot(q * query_scale) rot(k * key_scale)ᵀ) v * output_scale`, where `rot` is
    the rotary rotation or nothing. `k is v` says that keys and values are one tensor.
    """

    q_BHLK: Tensor
    k_BGLK: Tensor
    v_BGLK: Tensor
    query_scale_HK: Tensor | None = None
    key_scale_HK: Tensor | None = None
    output_scale_HK: Tensor | None = None


def is_plain_linear(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a layer's weights may be used without calling it: no adapter in its place, no hook that waits for it,
    no quantised or distributed weight."""
    if type(layer) is not nn.Linear:
        return False
    if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks:
        return False
    # Accelerate's hooks, which bring weights from elsewhere, are none of torch's.
    return not hasattr(layer, "_hf_hook") and type(layer.weight) in (nn.Parameter, Tensor)


def one_product_is_faster(hidden_BLD: Tensor) -> bool:
    """Than one for each layer: on a GPU it reads the states once. On a CPU products apart give BERT's very bits."""
    return hidden_BLD.is_cuda


@dataclass(frozen=True)
class NoOptions:
    """For variants with nothing to choose."""


class Variant(nn.Module):
    """Base of all variants. It knows nothing of masks, positions, caches or kernels.

    A subclass sets `Options` (a frozen dataclass), builds its parameters in `__init__`, fills in the methods
    below and, if it holds bare `nn.Parameter`s, initialises them in `init_weights`.
    """

    Options: ClassVar[type[Any]] = NoOptions
    made_for_rotary: ClassVar[bool] = False
    """Whether a model with learned positions should be told that rotary ones are meant."""

    def __init__(self, geometry: Geometry, options: Any):
        super().__init__()
        self.geometry = geometry
        self.options = options
        self.num_heads = geometry.num_heads
        self.num_key_value_heads = geometry.num_heads
        self.head_size = geometry.head_size

    @property
    def context_width(self) -> int:
        """Width of the attention output, so the input width of the output projection."""
        return self.num_heads * self.head_size

    def split_heads(self, states_BLE: Tensor) -> Tensor:
        return states_BLE.unflatten(-1, (-1, self.head_size)).transpose(1, 2)

    def project(self, hidden_BLD: Tensor, *layers: nn.Module) -> list[Tensor]:
        """What each layer makes of the states, split into heads.

        Where it gains time linear layers are computed as one product.
        """
        linears = [layer for layer in layers if is_plain_linear(layer)]
        biases = tuple(layer.bias for layer in linears if layer.bias is not None)
        alike = len(linears) == len(layers) and len(biases) in (0, len(layers))
        if alike and one_product_is_faster(hidden_BLD):
            weight = torch.cat(tuple(layer.weight for layer in linears))
            together = nn.functional.linear(hidden_BLD, weight, torch.cat(biases) if biases else None)
            made = together.split([layer.out_features for layer in linears], dim=-1)
        else:
            made = tuple(layer(hidden_BLD) for layer in layers)
        return [self.split_heads(states_BLE) for states_BLE in made]

    def per_head(self, vector_D: Tensor) -> Tensor:
        return vector_D.view(self.num_heads, self.head_size)

    def init_weights(self, std: float) -> None:
        """Initialise what the model's rule (Linears at `std`, biases zero) does not.

        Only through `transformers.initialization`: its functions keep weights that were loaded.
        """

    def forward(self, hidden_BLD: Tensor) -> Projected:
        raise NotImplementedError

    def fold(self, output: nn.Linear, rotary: bool) -> None:
        """Merge parameters with one another and with the output projection where that changes no result.

        Afterwards `options` must describe the parameters that are left. By default nothing can be merged.
        """

    def parameter_formula(self) -> int:
        """How many parameters the paper's algebra says this has; tests hold the module to it."""
        raise NotImplementedError

    def projection_flops(self) -> int:
        """Forward FLOPs per token of the matrix products that make q, k and v (a multiply-add is 2)."""
        raise NotImplementedError
