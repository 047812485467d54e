"""Exact duplicates: which documents of a corpus have been seen before, in bounded memory."""

import hashlib
from collections.abc import Callable, Iterator

import numpy as np

HASH_BYTES = 16
DOCUMENTS_AT_ONCE = 1 << 21
"""About 150 MB while they are sorted."""


def document_hash(text: bytes) -> bytes:
    """128 bits of the whole document; the caller strips the outer white space."""
    return hashlib.blake2b(text, digest_size=HASH_BYTES).digest()


def find_duplicates(hashes_of: Callable[[int], np.ndarray], blocks: int, documents: int) -> Iterator[np.ndarray]:
    """The places in the corpus of documents that occurred before, in sorted arrays, one for each share of the hashes.

    `hashes_of(block)` gives the hashes of a block's documents, (documents, HASH_BYTES) bytes. A share holds the
    hashes with one remainder; as equal hashes share it, shares are judged one by one, and memory stays flat.
    """
    shares = max(1, -(-documents // DOCUMENTS_AT_ONCE))
    for share in range(shares):
        places, keys = [], []
        start = 0
        for block in range(blocks):
            halves = np.ascontiguousarray(hashes_of(block)).view("<u8")
            mine = np.flatnonzero(halves[:, 1] % np.uint64(shares) == share)
            places.append(start + mine)
            keys.append(halves[mine])
            start += len(halves)
        yield _repeated(np.concatenate(keys), np.concatenate(places))


def _repeated(keys: np.ndarray, places: np.ndarray) -> np.ndarray:
    # The sort is stable: among equal keys the first in the corpus comes first, and is the one kept.
    order = np.lexsort((keys[:, 0], keys[:, 1]))
    ordered = keys[order]
    repeats = np.flatnonzero((ordered[1:] == ordered[:-1]).all(axis=1)) + 1
    return np.sort(places[order[repeats]])
