"""What the kernels beside attention need of a tensor."""

from collections.abc import Collection

import torch
from torch import Tensor

from sharedqkv.kernels.op import TRITON_INSTALLED

HALF = (torch.bfloat16, torch.float16)


def kernels_know(states: Tensor, dtypes: Collection[torch.dtype] = HALF) -> bool:
    """Whether kernels written for these dtypes can take the states: only on an NVIDIA GPU that is not too old."""
    return TRITON_INSTALLED and states.is_cuda and states.dtype in dtypes and _gpu_is_new_enough(states.device)


# Asked once while compiling: a compiled graph could not ask.
@torch.compiler.assume_constant_result
def _gpu_is_new_enough(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)
