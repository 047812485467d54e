"""BERT's masking as a pure function of seed and sample number, with a fixed number of targets in every row.

15 % of the tokens are targets; of these 80 % become [MASK], 10 % another token and 10 % stay.
"""

from dataclasses import dataclass

import numpy as np

from sharedqkv.data.sampling import uniform
from sharedqkv.models.losses import IGNORED

_CHOICE, _FATE, _REPLACEMENT = 2, 3, 4


@dataclass(frozen=True)
class Vocabulary:
    """What masking must know of a tokenizer."""

    mask_id: int
    special_ids: np.ndarray
    """Never masked, never put in: [PAD], [CLS], [SEP] and the like."""
    ordinary_ids: np.ndarray
    """What a token may be replaced by."""
    continues_word: np.ndarray
    """For every id, whether it continues the word before it (`##`)."""

    @classmethod
    def of(cls, tokenizer) -> "Vocabulary":  # type: ignore[no-untyped-def]
        tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        special = np.array(sorted(tokenizer.all_special_ids), dtype=np.int64)
        return cls(
            mask_id=tokenizer.mask_token_id,
            special_ids=special,
            ordinary_ids=np.setdiff1d(np.arange(len(tokens)), special),
            continues_word=np.array([token.startswith("##") for token in tokens]),
        )


@dataclass(frozen=True)
class Masking:
    vocabulary: Vocabulary
    seed: int
    share: float = 0.15
    whole_words: bool = False

    def num_targets(self, length: int) -> int:
        """Targets in a full row of this length, two special tokens set aside: the fixed count of every row."""
        return max(1, round(self.share * (length - 2)))

    def __call__(self, rows: np.ndarray, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(inputs, positions, labels) for rows (batch, length); positions and labels are (batch, count).

        A row with fewer tokens has fewer targets; labels of -100 at position 0 fill it up.
        """
        batch, length = rows.shape
        count = self.num_targets(length)
        columns = np.arange(length)[None]
        numbers = samples.astype(np.int64)[:, None]
        maskable = ~np.isin(rows, self.vocabulary.special_ids)
        wanted = np.minimum(count, np.maximum(1, np.rint(self.share * maskable.sum(axis=1)))).astype(np.int64)

        priority = uniform(self.seed, _CHOICE, numbers, columns)
        order = self._word_order(rows, maskable, priority) if self.whole_words else priority
        order = np.where(maskable, order, np.inf)
        positions = np.sort(self._first(order, wanted, count, length), axis=1)
        chosen = positions < length
        positions = np.where(chosen, positions, 0)

        originals = np.take_along_axis(rows, positions, axis=1)
        fate = uniform(self.seed, _FATE, numbers, positions)
        draw = uniform(self.seed, _REPLACEMENT, numbers, positions)
        ordinary = self.vocabulary.ordinary_ids
        others = ordinary[(draw * len(ordinary)).astype(np.int64)]
        replaced = np.where(fate < 0.8, self.vocabulary.mask_id, np.where(fate < 0.9, others, originals))
        inputs = rows.copy()
        row_numbers = np.broadcast_to(np.arange(batch)[:, None], positions.shape)
        inputs[row_numbers[chosen], positions[chosen]] = replaced[chosen]
        return inputs, positions, np.where(chosen, originals, IGNORED)

    def _first(self, order: np.ndarray, wanted: np.ndarray, count: int, length: int) -> np.ndarray:
        """Columns of the `wanted` smallest finite entries of each row, `length` where there are no more."""
        columns = np.argsort(order, axis=1, kind="stable")[:, :count]
        finite = np.isfinite(np.take_along_axis(order, columns, axis=1))
        return np.where((np.arange(count)[None] < wanted[:, None]) & finite, columns, length)

    def _word_order(self, rows: np.ndarray, maskable: np.ndarray, priority: np.ndarray) -> np.ndarray:
        """The priority of a word's first piece for all its pieces: words are taken whole until the count is full.

        Ties are broken from left to right, so that only the last word taken may be cut off.
        """
        begins = ~maskable | ~self.vocabulary.continues_word[rows]
        starts = np.maximum.accumulate(np.where(begins, np.arange(rows.shape[1])[None], 0), axis=1)
        return np.take_along_axis(priority, starts, axis=1)
