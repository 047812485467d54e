"""Stopping on a loss that is no number, without making the GPU wait for the check."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor


class NonFiniteLossError(ValueError):
    """Training must stop: the loss is NaN or infinite."""


class LossWatch:
    """Losses are looked at one step late: by then they are computed, and reading them stalls nothing."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._current: list[tuple[Tensor, dict[str, Any]]] = []
        self._previous: list[tuple[Tensor, dict[str, Any]]] = []

    def saw(self, loss: Tensor, inputs: dict[str, Any]) -> None:
        self._current.append((loss, inputs))

    def step_ended(self, step: int) -> None:
        self._check(self._previous, step - 1)
        self._previous, self._current = self._current, []

    def check_now(self, step: int) -> None:
        """Before anything is kept: nothing unchecked may be pending."""
        self._check([*self._previous, *self._current], step)

    def _check(self, pending: list[tuple[Tensor, dict[str, Any]]], step: int) -> None:
        for loss, inputs in pending:
            if not torch.isfinite(loss):
                raise NonFiniteLossError(self._report(loss, inputs, step))

    def _report(self, loss: Tensor, inputs: dict[str, Any], step: int) -> str:
        path = self.folder / f"non_finite_batch_{step}.safetensors"
        tensors = {name: value.contiguous().cpu() for name, value in inputs.items() if isinstance(value, Tensor)}
        save_file(tensors, path)
        return (
            f"the loss is {loss.item()} at step {step}. The batch is kept in {path}; the checkpoints before it are "
            "good. Lower learning_rate or lengthen warmup and start anew, or look at the batch and continue with "
            "--resume auto"
        )
