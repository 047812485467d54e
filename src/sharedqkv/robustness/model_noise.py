"""Noise inside the model: on the embeddings, and tokens that are hidden.

A row's noise hangs on its key, the seed and its own tokens alone: not on the rows beside it, their padding, the batch
size or the device. A higher severity scales the noise of a lower one, or hides further tokens.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharedqkv.robustness.noises import MODEL_NOISES
from sharedqkv.robustness.text_noise import RATES
from sharedqkv.tasks.outputs import OnBatch

STRENGTHS = (0.1, 0.25, 0.5, 1.0, 1.5)
"""Severities 1 to 5 of noise on embeddings: its standard deviation, in that of the embeddings."""
_PLACES = 2**22
"""So many different stretches of random numbers; drawn once, since drawing anew would cost more than the model."""


@dataclass(frozen=True)
class NoisyRow:
    key: str
    """Of the text: an example's id."""
    severity: int


@contextmanager
def noise_in(model: Any, tokenizer: Any, noise: str, seed: int, rows: Sequence[NoisyRow]) -> Iterator[OnBatch]:
    """While it lasts, the model's inputs are noisy. Gives what `table_outputs` must call with each batch."""
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
        self.pool = _pool(noise, seed, _PLACES + config.max_position_embeddings * config.hidden_size)
        self.strengths_R = torch.tensor([0.0, *STRENGTHS])[[row.severity for row in rows]]
        self.places_R = torch.tensor([_number(noise, seed, row.key) % _PLACES for row in rows])
        self.picked_B = self.mask_BL = torch.empty(0)

    def __call__(self, picked: Any, batch: dict[str, Tensor]) -> None:
        self.mask_BL = batch["attention_mask"]
        device = self.mask_BL.device
        self.picked_B = torch.as_tensor(picked, device=device)
        self.pool, self.strengths_R, self.places_R = (
            numbers.to(device) for numbers in (self.pool, self.strengths_R, self.places_R)
        )

    def to_output(self, module: Any, inputs: Any, states_BLD: Tensor) -> Tensor:
        stretches = self.pool.unfold(0, states_BLD.shape[1] * states_BLD.shape[2], 1)
        noise_BLD = stretches[self.places_R[self.picked_B]].view(states_BLD.shape)
        deviation_B = _standard_deviation(states_BLD.float(), self.mask_BL)
        scale_B = self.strengths_R[self.picked_B] * deviation_B
        noisy = states_BLD + scale_B[:, None, None] * noise_BLD
        return noisy.to(states_BLD.dtype)


@lru_cache(maxsize=2)
def _pool(noise: str, seed: int, size: int) -> Tensor:
    """The random numbers of all rows, the same for every model."""
    numbers = torch.Generator().manual_seed(seed)
    if noise == "gaussian":
        return torch.randn(size, generator=numbers)
    return torch.rand(size, generator=numbers).mul_(2).sub_(1).mul_(3**0.5)


def _standard_deviation(states_BLD: Tensor, mask_BL: Tensor) -> Tensor:
    """Of each row's embeddings, padding left out."""
    weight_BL1 = mask_BL[:, :, None] / (mask_BL.sum(1)[:, None, None] * states_BLD.shape[2])
    mean_B = (weight_BL1 * states_BLD).sum((1, 2))
    return (weight_BL1 * (states_BLD - mean_B[:, None, None]) ** 2).sum((1, 2)).sqrt()


class _TokenDropout:
    """Hides tokens, but never [CLS] and [SEP]."""

    def __init__(self, seed: int, rows: Sequence[NoisyRow], tokenizer: Any):
        self.seed = seed
        self.keys = list(dict.fromkeys(row.key for row in rows))
        number = {key: index for index, key in enumerate(self.keys)}
        self.key_R = torch.tensor([number[row.key] for row in rows])
        self.rate_R = torch.tensor([0.0, *RATES], dtype=torch.float64)[[row.severity for row in rows]]
        self.kept_ids = torch.tensor([tokenizer.cls_token_id, tokenizer.sep_token_id])
        self.draws_KL = torch.empty(len(self.keys), 0)

    def __call__(self, picked: Any, batch: dict[str, Tensor]) -> None:
        mask_BL = batch["attention_mask"]
        length, device = mask_BL.shape[1], mask_BL.device
        if self.draws_KL.shape[1] < length:
            self.draws_KL = torch.from_numpy(np.stack([self._draws(key, length) for key in self.keys]))
        self.draws_KL, self.key_R, self.rate_R, self.kept_ids = (
            numbers.to(device) for numbers in (self.draws_KL, self.key_R, self.rate_R, self.kept_ids)
        )
        picked_B = torch.as_tensor(picked, device=device)
        hidden_BL = self.draws_KL[self.key_R[picked_B], :length] < self.rate_R[picked_B, None]
        kept_BL = torch.isin(batch["input_ids"], self.kept_ids)
        batch["attention_mask"] = mask_BL * (kept_BL | ~hidden_BL)

    def _draws(self, key: str, length: int) -> np.ndarray:
        """A longer row begins with the numbers of a shorter one."""
        return np.random.Generator(np.random.PCG64(_number("token_dropout", self.seed, key))).random(length)


def _number(noise: str, seed: int, key: str) -> int:
    digest = hashlib.sha256(f"{noise}\n{seed}\n{key}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")
