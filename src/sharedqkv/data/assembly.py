"""From the rows of blocks to shards: thinning by the weights of sources, and files of a handy size."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from sharedqkv.data.blocks import load_rows
from sharedqkv.data.files import atomic_write, sha256_of
from sharedqkv.data.layouts import RowFormat
from sharedqkv.data.manifest import FileRecord, ShardRecord
from sharedqkv.data.sources import Source, Split

SHARD_BYTES = 32 << 20


class EmptyCorpusError(ValueError):
    """Preparing gave nothing to train on."""


@dataclass(frozen=True)
class Piece:
    """Some rows of a block that go into one shard."""

    block: int
    path: Path
    rows: int
    kept: int
    """How many of all its rows stay after thinning."""
    start: int
    stop: int
    """Which of those that stay."""


def shares_to_keep(sources: Sequence[Source], rows: Sequence[int]) -> list[tuple[int, int]]:
    """For every source how many of how many rows stay, so that those with weights stand in the proportion of these.

    The source that runs out first sets the size; without weights everything stays.
    """
    shares = [(1, 1)] * len(sources)
    weights = {number: source.weight for number, source in enumerate(sources) if source.weight is not None}
    for number in weights:
        if not rows[number]:
            name = sources[number].name
            raise EmptyCorpusError(f"--source {name} gives not one row, so it cannot be mixed by weight")
    size = min((rows[number] / weight for number, weight in weights.items()), default=0.0)
    for number, weight in weights.items():
        wanted = math.floor(size * weight + 1e-6)
        shares[number] = (min(rows[number], max(1, wanted)), rows[number])
    return shares


def thin(rows: Sequence[int], sources: Sequence[int], shares: Sequence[tuple[int, int]]) -> list[int]:
    """How many rows of every block stay; those of a source add up to exactly its share, rounded down."""
    kept = []
    seen = [0] * len(shares)
    for count, source in zip(rows, sources, strict=True):
        keep, of = shares[source]
        before, seen[source] = seen[source], seen[source] + count
        kept.append(seen[source] * keep // of - before * keep // of)
    return kept


def plan_shards(
    paths: Sequence[Path], rows: Sequence[int], kept: Sequence[int], rows_per_shard: int
) -> Iterator[list[Piece]]:
    """Cut the rows that stay, block after block, into shards."""
    pieces: list[Piece] = []
    free = rows_per_shard
    for block, path in enumerate(paths):
        start = 0
        while start < kept[block]:
            stop = min(kept[block], start + free)
            pieces.append(Piece(block, path, rows[block], kept[block], start, stop))
            free -= stop - start
            start = stop
            if free == 0:
                yield pieces
                pieces, free = [], rows_per_shard
    if pieces:
        yield pieces


def write_shard(
    path: Path, pieces: Sequence[Piece], split: Split, row: RowFormat, seed: int, has_labels: bool, temporary: Path
) -> ShardRecord:
    ids = np.empty((sum(piece.stop - piece.start for piece in pieces), row.length), row.dtype)
    labels = np.empty(len(ids), np.uint8)
    end = 0
    for piece in pieces:
        block_ids, block_labels = load_rows(piece.path, split)
        places = _places_kept(piece, seed)
        start, end = end, end + len(places)
        ids[start:end] = block_ids[places]
        if has_labels:
            labels[start:end] = block_labels[places]
    return ShardRecord(
        file=_save(path, ids, temporary),
        rows=len(ids),
        tokens=row.tokens_in(ids),
        next_sentence=_save(path.with_suffix(".next_sentence.npy"), labels, temporary) if has_labels else None,
    )


def _places_kept(piece: Piece, seed: int) -> np.ndarray:
    places = list(range(piece.rows))
    if piece.kept < piece.rows:
        places = sorted(Random(f"{seed} {piece.block}").sample(places, piece.kept))
    return np.array(places[piece.start : piece.stop], np.int64)


def _save(path: Path, array: np.ndarray, temporary: Path) -> FileRecord:
    with atomic_write(path, temporary) as file:
        np.save(file, array)
    return FileRecord(path.name, path.stat().st_size, sha256_of(path))
