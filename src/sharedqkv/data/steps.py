"""The steps of preparing a corpus, each over all blocks: tokenise, lay out, choose rows, write shards."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import Progress

from sharedqkv.data.assembly import SHARD_BYTES, EmptyCorpusError, plan_shards, shares_to_keep, thin, write_shard
from sharedqkv.data.blocks import BlockReport, BlockSettings, lay_out_block, load_arrays, tokenise_block
from sharedqkv.data.deduplication import find_duplicates
from sharedqkv.data.files import atomic_write
from sharedqkv.data.manifest import SplitRecord
from sharedqkv.data.reading import TextOptions
from sharedqkv.data.sources import SPLITS, Source, Split, read_blocks
from sharedqkv.data.work import WorkFolder, read_json, write_json
from sharedqkv.data.workers import Workers

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ReadBlock:
    """A block after the first step."""

    source: int
    tokens: Path
    documents: int


@dataclass(frozen=True)
class Steps:
    sources: Sequence[Source]
    settings: BlockSettings
    work: WorkFolder
    workers: Workers

    def tokenise(self, tokenizer_file: Path, tokenizer_digest: str, options: TextOptions) -> list[ReadBlock]:
        """Read the corpus in this process, tokenise it in the workers."""
        files = [file for source in self.sources for file in source.files]
        listing = self.work.blocks(digest(tokenizer_digest, *map(fingerprint, files)))
        found: list[list[Any]] = read_json(listing) or []
        if not all((self.work.path / "tokens" / name).exists() for _, name in found):
            found.clear()

        def tasks() -> Iterator[tuple[Any, ...]]:
            basis = tokenizer_digest
            for number, block in enumerate(read_blocks(self.sources, options)):
                basis = digest(basis, *map(fingerprint, block.new_files))
                path = self.work.tokens(number, basis)
                found.append([block.source, path.name])
                texts = [] if path.exists() else block.texts
                yield path, texts, block.input_bytes, tokenizer_file, self.settings.layout == "pairs"

        if not found:
            total = sum(file.stat().st_size for file in files)
            results = self.workers.run(tokenise_block, tasks())
            for _ in watched("reading and tokenising", total, results, int):
                pass
            write_json(listing, found)
        paths = [(source, self.work.path / "tokens" / name) for source, name in found]
        return [ReadBlock(source, path, len(load_arrays(path, "sentences")["sentences"])) for source, path in paths]

    def lay_out(self, blocks: Sequence[ReadBlock], basis: str) -> list[BlockReport]:
        duplicates = self._find_duplicates(blocks, basis)

        def tasks() -> Iterator[tuple[Any, ...]]:
            start = 0
            for number, block in enumerate(blocks):
                places = _between(duplicates, start, start + block.documents)
                split = self.sources[block.source].split
                yield block.tokens, self.work.rows(number, basis), number, split, places, self.settings
                start += block.documents

        results = self.workers.run(lay_out_block, tasks())
        return sorted(watched("laying out rows", len(blocks), results), key=lambda report: report.number)

    def _find_duplicates(self, blocks: Sequence[ReadBlock], basis: str) -> list[Path]:
        shares = find_duplicates(
            lambda number: load_arrays(blocks[number].tokens, "hashes")["hashes"],
            blocks=len(blocks),
            documents=sum(block.documents for block in blocks),
        )
        paths = []
        for number, places in enumerate(shares):
            path = self.work.duplicates(number, basis)
            with atomic_write(path) as file:
                np.save(file, places)
            paths.append(path)
        return paths

    def choose_rows(self, blocks: Sequence[ReadBlock], reports: Sequence[BlockReport]) -> dict[Split, list[int]]:
        """How many rows of every block stay, by split: all, unless sources have weights."""
        rows = Counter[int]()
        for block, report in zip(blocks, reports, strict=True):
            rows[block.source] += report.splits["train"].rows
        if not rows.total():
            raise EmptyCorpusError(_why_no_rows(reports))
        shares = shares_to_keep(self.sources, [rows[number] for number in range(len(self.sources))])
        sources = [block.source for block in blocks]
        return {split: thin([report.splits[split].rows for report in reports], sources, shares) for split in SPLITS}

    def write_shards(
        self, split: Split, reports: Sequence[BlockReport], kept: Sequence[int], basis: str, output: Path
    ) -> SplitRecord:
        row = self.settings.row
        counts = [report.splits[split] for report in reports]
        paths = [self.work.rows(report.number, basis) for report in reports]
        rows_per_shard = max(1, SHARD_BYTES // (row.length * row.dtype.itemsize))
        plan = list(plan_shards(paths, [count.rows for count in counts], kept, rows_per_shard))
        has_labels = self.settings.layout == "pairs"
        tasks = (
            (output / f"{split}-{number:05}.npy", pieces, split, row, self.settings.seed, has_labels, self.work.path)
            for number, pieces in enumerate(plan)
        )
        results = watched(f"writing {split} shards", len(plan), self.workers.run(write_shard, tasks))
        shards = tuple(sorted(results, key=lambda shard: shard.file.name))
        return SplitRecord(
            documents=sum(count.documents for count in counts),
            rows=sum(shard.rows for shard in shards),
            tokens=sum(shard.tokens for shard in shards),
            dropped_tokens=sum(count.dropped_tokens for count in counts),
            shards=shards,
        )


def _why_no_rows(reports: Sequence[BlockReport]) -> str:
    if any(report.splits["train"].documents for report in reports):
        return (
            "not one row to train on: every document is shorter than a row. Use --layout packed or a smaller --length"
        )
    return "no document to train on: all are held out for validation, or the same as one of --validation-source"


def digest(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


def fingerprint(file: Path) -> str:
    """Changes when the file is replaced."""
    stat = file.stat()
    return f"{file} {stat.st_size} {stat.st_mtime_ns}"


def watched(
    description: str, total: int, results: Iterable[Result], progress_of: Callable[[Result], int] = lambda result: 1
) -> Iterator[Result]:
    """The results as they are, with a progress bar in a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(description, total=total)
        for result in results:
            progress.advance(task, progress_of(result))
            yield result


def _between(paths: Sequence[Path], start: int, end: int) -> np.ndarray:
    """Which documents from `start` to `end` are duplicates, counted from `start`."""
    found = []
    for path in paths:
        places = np.load(path, mmap_mode="r")
        found.append(places[slice(*np.searchsorted(places, [start, end]))] - start)
    return np.concatenate(found)
