"""What a model answers to many inputs: they go to the device at once, the answers come back at the end."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharedqkv.tasks.recipe import FinetuneRecipe

_MULTIPLE = 8
"""Rows are padded to a multiple of this, which tensor cores like, unless that would exceed max_length."""
OnBatch = Callable[[Any, dict[str, Tensor]], None]
"""Called with the numbers of a batch's inputs and the batch, which it may change."""


def padded_length(longest: int, max_length: int) -> int:
    multiple = _MULTIPLE if max_length % _MULTIPLE == 0 else 1
    return math.ceil(longest / multiple) * multiple


@dataclass(frozen=True)
class InputTable:
    """Inputs as arrays, a padded row each."""

    ids_RL: np.ndarray
    types_RL: np.ndarray
    lengths_R: np.ndarray
    """Tokens without the padding."""

    @classmethod
    def of(cls, inputs: Sequence[dict[str, Any]], recipe: FinetuneRecipe, pad_token_id: int) -> "InputTable":
        lengths_R = np.array([len(row["input_ids"]) for row in inputs])
        width = padded_length(int(lengths_R.max()), recipe.max_length)
        is_token_RL = np.arange(width) < lengths_R[:, None]
        table = cls(np.full(is_token_RL.shape, pad_token_id, np.int32), np.zeros(is_token_RL.shape, np.int8), lengths_R)
        for name, target in (("input_ids", table.ids_RL), ("token_type_ids", table.types_RL)):
            target[is_token_RL] = np.fromiter(chain.from_iterable(row[name] for row in inputs), target.dtype)
        return table

    @classmethod
    def joined(cls, tables: Sequence["InputTable"], pad_token_id: int) -> "InputTable":
        width = max(table.ids_RL.shape[1] for table in tables)

        def widened(rows: np.ndarray, filler: int) -> np.ndarray:
            return np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=filler)

        return cls(
            np.concatenate([widened(table.ids_RL, pad_token_id) for table in tables]),
            np.concatenate([widened(table.types_RL, 0) for table in tables]),
            np.concatenate([table.lengths_R for table in tables]),
        )


@dataclass(frozen=True)
class Outputs:
    """As they left the model, in batches."""

    order: np.ndarray
    """The inputs' numbers, batch after batch."""
    batches: list[np.ndarray]

    def of_inputs(self) -> list[np.ndarray]:
        """For each of the inputs: logits of the classes, or (2, length) logits of start and end."""
        outputs = dict(zip(self.order.tolist(), chain.from_iterable(self.batches), strict=True))
        return [outputs[number] for number in range(len(outputs))]


@contextmanager
def float32_products(recipe: FinetuneRecipe) -> Iterator[None]:
    """As the recipe wants them on a GPU; CPUs, where the same setting may mean bfloat16, are left as they are."""
    if not (recipe.tf32 and torch.cuda.is_available()):
        yield
        return
    # The new setting is asked and the old one set, which sets both: once somebody has used the new one, as Transformers
    # does before it compiles, torch refuses to say what the old one is.
    was_on = torch.backends.cuda.matmul.fp32_precision == "tf32"
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("high" if was_on else "highest")


@torch.no_grad()
def table_outputs(model: Any, table: InputTable, recipe: FinetuneRecipe, on_batch: OnBatch | None = None) -> Outputs:
    """Inputs of like length share a batch. Nothing waits for the device before the last batch is on its way."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device).eval()
    logits = []
    for picked, batch in device_batches(table, recipe, device):
        if on_batch is not None:
            on_batch(picked, batch)
        with float32_products(recipe), torch.autocast(device.type, torch.bfloat16, enabled=recipe.bf16):
            output = model(**batch)
        spans = hasattr(output, "start_logits")
        logits.append(torch.stack((output.start_logits, output.end_logits), dim=1) if spans else output.logits)
    numbers = torch.cat([part.flatten() for part in logits]).float().cpu().numpy()
    if not np.isfinite(numbers).all():
        raise ValueError("the model's outputs hold NaN or infinity: the training diverged; lower learning_rate")
    pieces = np.split(numbers, np.cumsum([part.numel() for part in logits])[:-1])
    return Outputs(_order(table), [piece.reshape(part.shape) for piece, part in zip(pieces, logits, strict=True)])


def device_batches(
    table: InputTable, recipe: FinetuneRecipe, device: torch.device
) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """The numbers of a batch's inputs, and the batch: long inputs first, like beside like.

    The batches are views of tensors on the device, so that a small model does not wait for them to be made.
    """
    order = _order(table)
    order_R = torch.from_numpy(order).to(device)
    sorted_rows = {
        "input_ids": table.ids_RL[order],
        "token_type_ids": table.types_RL[order].astype(np.int32),
        "attention_mask": np.arange(table.ids_RL.shape[1]) < table.lengths_R[order, None],
    }
    on_device = {name: torch.from_numpy(rows).to(device) for name, rows in sorted_rows.items()}
    for first in range(0, len(order), recipe.eval_batch_size):
        rows = slice(first, first + recipe.eval_batch_size)
        length = padded_length(int(table.lengths_R[order[first]]), recipe.max_length)
        yield order_R[rows], {name: values_RL[rows, :length] for name, values_RL in on_device.items()}


def _order(table: InputTable) -> np.ndarray:
    return np.argsort(-table.lengths_R, kind="stable")
