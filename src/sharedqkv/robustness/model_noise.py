"""Noise inside the model: on the embeddings, and tokens that are hidden.

A row's noise hangs on its key, the seed and its own tokens alone: not on the rows beside it, their padding, the batch
size or the device. A higher severity scales the noise of a lower one, or hides further tokens.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharedqkv.robustness.text_noise import RATES
from sharedqkv.tasks.training import OnBatch

STRENGTHS = (0.1, 0.25, 0.5, 1.0, 1.5)
"""Severities 1 to 5 of noise on embeddings: its standard deviation, in that of the embeddings."""
MODEL_NOISES = {
    "gaussian": "normal noise after the LayerNorm of the embeddings",
    "uniform": "uniform noise of the same standard deviation there",
    "token_dropout": "a share of the tokens is hidden from attention",
}
_PLACES = 2**22
"""So many different stretches of random numbers; drawn once, since drawing anew would cost more than the model."""


@dataclass(frozen=True)
class NoisyRow:
    key: str
    """Of the text: an example's id."""
    severity: int


@contextmanager
def noise_in(model: Any, tokenizer: Any, noise: str, seed: int, rows: Sequence[NoisyRow]) -> Iterator[OnBatch]:
    """While it lasts, the model's inputs are noisy. Gives what `outputs_of` must call with each batch."""
    if noise not in MODEL_NOISES:
        raise ValueError(f"unknown noise {noise!r}; known in the model are {', '.join(MODEL_NOISES)}")
    if noise == "token_dropout":
        yield _TokenDropout(seed, rows, tokenizer)
        return
    added = _EmbeddingNoise(noise, seed, rows, model)
    hook = model.bert.embeddings.LayerNorm.register_forward_hook(added.to_output)
    try:
        yield added
    finally:
        hook.remove()


class _EmbeddingNoise:
    def __init__(self, noise: str, seed: int, rows: Sequence[NoisyRow], model: Any):
        config = model.config
        self.rows = rows
        self.strengths = torch.tensor([0.0, *STRENGTHS])[[row.severity for row in rows]]
        self.places = [_number(noise, seed, row.key) % _PLACES for row in rows]
        numbers = torch.Generator().manual_seed(seed)
        size = _PLACES + config.max_position_embeddings * config.hidden_size
        if noise == "gaussian":
            self.pool = torch.randn(size, generator=numbers)
        else:
            self.pool = (2 * torch.rand(size, generator=numbers) - 1) * 3**0.5
        self.picked: Sequence[int] = ()
        self.mask_BL: Tensor = torch.empty(0)

    def __call__(self, picked: Sequence[int], batch: dict[str, Tensor]) -> None:
        self.picked, self.mask_BL = picked, batch["attention_mask"]
        self.pool = self.pool.to(self.mask_BL.device)

    def to_output(self, module: Any, inputs: Any, states_BLD: Tensor) -> Tensor:
        length = states_BLD.shape[1] * states_BLD.shape[2]
        noise_BLD = torch.stack([self.pool[self.places[row] : self.places[row] + length] for row in self.picked])
        strength_B = self.strengths[list(self.picked)].to(states_BLD.device)
        scale_B = strength_B * _standard_deviation(states_BLD.float(), self.mask_BL)
        noisy = states_BLD + scale_B[:, None, None] * noise_BLD.view(states_BLD.shape)
        return noisy.to(states_BLD.dtype)


def _standard_deviation(states_BLD: Tensor, mask_BL: Tensor) -> Tensor:
    """Of each row's embeddings, padding left out."""
    weight_BL1 = mask_BL[:, :, None] / (mask_BL.sum(1)[:, None, None] * states_BLD.shape[2])
    mean_B = (weight_BL1 * states_BLD).sum((1, 2))
    return (weight_BL1 * (states_BLD - mean_B[:, None, None]) ** 2).sum((1, 2)).sqrt()


class _TokenDropout:
    """Hides tokens, but never [CLS] and [SEP]."""

    def __init__(self, seed: int, rows: Sequence[NoisyRow], tokenizer: Any):
        self.seed = seed
        self.rows = rows
        self.kept_ids = torch.tensor([tokenizer.cls_token_id, tokenizer.sep_token_id])

    def __call__(self, picked: Sequence[int], batch: dict[str, Tensor]) -> None:
        mask_BL = batch["attention_mask"]
        hidden_BL = np.stack([self._hidden(self.rows[index], mask_BL.shape[1]) for index in picked])
        kept_BL = torch.isin(batch["input_ids"], self.kept_ids.to(mask_BL.device))
        batch["attention_mask"] = mask_BL * (kept_BL | ~torch.from_numpy(hidden_BL).to(mask_BL.device))

    def _hidden(self, row: NoisyRow, length: int) -> np.ndarray:
        numbers = np.random.Generator(np.random.PCG64(_number("token_dropout", self.seed, row.key)))
        return numbers.random(length) < (0.0, *RATES)[row.severity]


def _number(noise: str, seed: int, key: str) -> int:
    digest = hashlib.sha256(f"{noise}\n{seed}\n{key}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")
