"""Prepared rows as masked batches: what training and evaluation read."""

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from sharedqkv.data.masking import Masking
from sharedqkv.data.sampling import rows_of_samples
from sharedqkv.data.shards import ShardedRows

Batch = dict[str, torch.Tensor]


class MaskedBatches(Dataset[Batch]):
    """Samples 0 … num_samples - 1 of a run, fetched a batch at a time.

    With a `shuffle_seed` the samples run through the rows epoch after epoch; without one sample n is row n, and masked
    the same way every time, as evaluation needs it. Use `collate` with it: batches come out finished.
    """

    def __init__(self, rows: ShardedRows, masking: Masking, num_samples: int, shuffle_seed: int | None = None):
        self.rows = rows
        self.masking = masking
        self.num_samples = num_samples
        self.shuffle_seed = shuffle_seed

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, sample: int) -> Batch:
        return {name: tensor[0] for name, tensor in self.__getitems__([sample]).items()}

    def __getitems__(self, samples: list[int]) -> Batch:
        numbers = np.asarray(samples, dtype=np.int64)
        if self.shuffle_seed is None:
            row_numbers = numbers
        else:
            row_numbers = rows_of_samples(numbers, len(self.rows), self.shuffle_seed)
        tokens = np.stack([self.rows[int(row)] for row in row_numbers])
        inputs, positions, labels = self.masking(tokens, numbers)
        batch = {
            "input_ids": torch.from_numpy(inputs),
            "masked_positions": torch.from_numpy(positions),
            "labels": torch.from_numpy(labels),
        }
        manifest = self.rows.manifest
        if self.rows.layout == "packed":
            batch["document_ids"] = torch.from_numpy(np.cumsum(tokens == manifest.cls_id, axis=1))
        if self.rows.layout != "chunks":  # full rows need no mask, and are faster without one
            batch["attention_mask"] = torch.from_numpy((tokens != manifest.pad_id).astype(np.int64))
        if self.rows.layout == "pairs":
            separators_before = np.cumsum(tokens == manifest.sep_id, axis=1) - (tokens == manifest.sep_id)
            batch["token_type_ids"] = torch.from_numpy((separators_before == 1).astype(np.int64))
            labels_B = [self.rows.next_sentence(int(row)) for row in row_numbers]
            batch["next_sentence_label"] = torch.tensor(labels_B, dtype=torch.long)
        return batch


def collate(batch: Any) -> Any:
    """`MaskedBatches` hands out whole batches already."""
    return batch
