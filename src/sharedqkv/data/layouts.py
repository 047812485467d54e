"""From documents to rows of one length: `chunks`, `packed` and `pairs`.

Each layout is a function of the documents of one block and nothing else, so that blocks can be laid out in any order.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Literal

import numpy as np

Layout = Literal["chunks", "packed", "pairs"]
Document = Sequence[np.ndarray]
"""The ids of its sentences; for `chunks` and `packed` one array with all of them."""
SHORT_PAIRS = 0.1
"""The share of pairs BERT makes shorter than a row, so that short inputs are not new to the model."""


@dataclass(frozen=True)
class RowFormat:
    length: int
    dtype: np.dtype
    pad: int
    cls: int
    sep: int

    def tokens_in(self, rows: np.ndarray) -> int:
        """How many ids are text."""
        return rows.size - sum(int(np.count_nonzero(rows == special)) for special in (self.pad, self.cls, self.sep))


@dataclass(frozen=True)
class Rows:
    ids: np.ndarray
    """(rows, length)"""
    next_sentence: np.ndarray
    """Of `pairs`, 0 where B follows A in the document, 1 where it comes from elsewhere; else empty."""
    dropped_tokens: int
    """Tokens of the documents that are in no row."""


def lay_out(layout: Layout, documents: Sequence[Document], row: RowFormat, random: Random) -> Rows:
    if layout == "chunks":
        return chunk_rows([document[0] for document in documents], row)
    if layout == "packed":
        return pack_rows([document[0] for document in documents], row)
    return pair_rows(documents, row, random)


def chunk_rows(documents: Sequence[np.ndarray], row: RowFormat) -> Rows:
    """`[CLS] tokens [SEP]`: full rows of one document each; what is left at its end is dropped."""
    width = row.length - 2
    bodies = [ids[: len(ids) // width * width].reshape(-1, width) for ids in documents]
    body = np.concatenate([np.empty((0, width), row.dtype), *bodies])
    rows = np.empty((len(body), row.length), row.dtype)
    rows[:, 0], rows[:, 1:-1], rows[:, -1] = row.cls, body, row.sep
    return Rows(rows, _no_labels(), sum(len(ids) % width for ids in documents))


def pack_rows(documents: Sequence[np.ndarray], row: RowFormat) -> Rows:
    """Pieces `[CLS] tokens [SEP]` of one document each, several in a row, padded at its end; nothing is dropped.

    Only the last piece of a document is shorter than a row. The longest go first, each into the row that it fills
    best: rows come out nearly full.
    """
    width = row.length - 2
    pieces = [ids[start : start + width] for ids in documents for start in range(0, len(ids), width)]
    contents: list[list[np.ndarray]] = []
    open_rows: list[tuple[int, int]] = []
    for piece in sorted(pieces, key=len, reverse=True):
        needed = len(piece) + 2
        best = bisect_left(open_rows, (needed, 0))
        if best < len(open_rows):
            space, number = open_rows.pop(best)
            contents[number].append(piece)
        else:
            space, number = row.length, len(contents)
            contents.append([piece])
        if space - needed >= 3:
            insort(open_rows, (space - needed, number))
    rows = np.full((len(contents), row.length), row.pad, row.dtype)
    for ids, content in zip(rows, contents, strict=True):
        start = 0
        for piece in content:
            start = _put(ids, start, [row.cls], piece, [row.sep])
    return Rows(rows, _no_labels(), 0)


def pair_rows(documents: Sequence[Document], row: RowFormat, random: Random) -> Rows:
    """BERT's next-sentence pairs, `[CLS] A [SEP] B [SEP]`, padded: B follows A, or comes from another document.

    In a block of a single document it comes from another place in it.
    """
    widest = row.length - 3
    documents = [pieces for document in documents if (pieces := _cut_sentences(document, widest))]
    rows, labels, dropped = [], [], 0
    for index, document in enumerate(documents):
        start = 0
        while start < len(document):
            wanted = random.randint(2, widest) if random.random() < SHORT_PAIRS else widest
            end = _fill(document, start, wanted)
            middle = start + 1 if end - start == 1 else random.randint(start + 1, end - 1)
            first = np.concatenate(document[start:middle])
            is_random = end - start == 1 or random.random() < 0.5
            if is_random:
                # The sentences after A are not used up: they start the next pair.
                other = documents[_another(index, len(documents), random)]
                other_start = random.randrange(len(other))
                second = np.concatenate(other[other_start : _fill(other, other_start, wanted - len(first))])
                start = middle
            else:
                second = np.concatenate(document[middle:end])
                start = end
            excess = max(0, len(first) + len(second) - widest)
            first, second = _truncate(first, second, excess, random)
            ids = np.full(row.length, row.pad, row.dtype)
            _put(ids, 0, [row.cls], first, [row.sep], second, [row.sep])
            rows.append(ids)
            labels.append(is_random)
            dropped += excess
    return Rows(np.array(rows, row.dtype).reshape(-1, row.length), np.array(labels, np.uint8), dropped)


def _cut_sentences(document: Document, widest: int) -> list[np.ndarray]:
    """Without empty sentences; one that fits into no row is cut, so that text without full stops is not lost."""
    pieces: list[np.ndarray] = []
    for sentence in document:
        step = len(sentence) if len(sentence) <= widest else widest // 2
        pieces += [sentence[start : start + step] for start in range(0, len(sentence), max(1, step))]
    return pieces


def _fill(document: Document, start: int, wanted: int) -> int:
    """Where to stop for `wanted` tokens, or at the end of the document; at least one sentence is taken."""
    end, size = start + 1, len(document[start])
    while end < len(document) and size < wanted:
        size += len(document[end])
        end += 1
    return end


def _another(index: int, count: int, random: Random) -> int:
    if count == 1:
        return index
    other = random.randrange(count - 1)
    return other + (other >= index)


def _truncate(first: np.ndarray, second: np.ndarray, excess: int, random: Random) -> tuple[np.ndarray, np.ndarray]:
    """Take tokens from the longer of the two, at its front or its back by chance, until `excess` are gone."""
    bounds = [[0, len(first)], [0, len(second)]]
    for _ in range(excess):
        longer = bounds[0] if bounds[0][1] - bounds[0][0] > bounds[1][1] - bounds[1][0] else bounds[1]
        if random.random() < 0.5:
            longer[0] += 1
        else:
            longer[1] -= 1
    return first[slice(*bounds[0])], second[slice(*bounds[1])]


def _put(row: np.ndarray, start: int, *parts: Sequence[int] | np.ndarray) -> int:
    for part in parts:
        row[start : start + len(part)] = part
        start += len(part)
    return start


def _no_labels() -> np.ndarray:
    return np.empty(0, np.uint8)


def split_lengths(ids: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """The opposite of concatenating arrays of these lengths."""
    bounds = np.concatenate([[0], np.cumsum(lengths)]).tolist()
    return [ids[start:end] for start, end in pairwise(bounds)]
