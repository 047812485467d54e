"""What a corpus is made of: named corpora of the hub and local files, and their documents in blocks."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal

from sharedqkv.data.reading import TextOptions, cut_long, format_of, known_formats, read_documents

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")
FileBatch = tuple[list[str], Path, int]
"""Some documents, their file, and how many of its bytes were read for them."""
BLOCK_CHARACTERS = 2_000_000
"""A block ends with the document that reaches this size, so that its bounds depend on nothing but the input."""


@dataclass(frozen=True)
class NamedCorpus:
    repository: str
    config: str | None
    revision: str
    rows_per_document: int = 1


NAMED_CORPORA = {
    "wikipedia": NamedCorpus("wikimedia/wikipedia", "20231101.en", "main"),
    # A sentence a row; its main branch is a loading script, which `datasets` no longer runs.
    "bookcorpus": NamedCorpus("bookcorpus/bookcorpus", None, "refs/convert/parquet", rows_per_document=1000),
}


@dataclass(frozen=True)
class Source:
    """One `--source` or `--validation-source`, with the files it stands for."""

    name: str
    split: Split
    files: tuple[Path, ...]
    weight: float | None = None
    repository: str | None = None
    commit: str | None = None
    rows_per_document: int = 1

    def inputs(self) -> list[tuple[str, int]]:
        """Names and sizes of the files: as the user wrote them, or without the cache's folder, which says nothing."""
        names = [file.name if self.repository else str(file) for file in self.files]
        return [(name, file.stat().st_size) for name, file in zip(names, self.files, strict=True)]


@dataclass(frozen=True)
class Block:
    source: int
    """The place of its source in the list of sources."""
    texts: list[str]
    new_files: tuple[Path, ...]
    """Files first read for this block. It depends on them and on all before."""
    input_bytes: int
    """How much of the files was read for it; for progress only."""


def resolve_source(text: str, split: Split) -> Source:
    """Read `PATH[=WEIGHT]` or `NAME[@REVISION][=WEIGHT]` and find its files."""
    name, weight = _split_weight(text)
    corpus_name, _, revision = name.partition("@")
    if corpus_name in NAMED_CORPORA:
        corpus = NAMED_CORPORA[corpus_name]
        commit, files = fetch_corpus(corpus, revision or corpus.revision)
        return Source(name, split, files, weight, corpus.repository, commit, corpus.rows_per_document)
    return Source(name, split, _local_files(Path(name), split), weight)


def _split_weight(text: str) -> tuple[str, float | None]:
    # A path may hold an equals sign itself: one that exists as it stands has no weight.
    name, equals, number = text.rpartition("=")
    if not equals or Path(text).exists():
        return text, None
    try:
        weight = float(number)
    except ValueError:
        return text, None
    if not (weight > 0 and math.isfinite(weight)):
        raise ValueError(f"--source {text}: the weight must be a positive number, not {number}")
    return name, weight


def _local_files(path: Path, split: Split) -> tuple[Path, ...]:
    if path.is_file():
        if format_of(path) is None:
            raise ValueError(f"{path}: unknown kind of file; known are {known_formats()}")
        return (path,)
    if not path.is_dir():
        raise ValueError(f"{path}: no such file or folder, nor a named corpus ({', '.join(NAMED_CORPORA)})")
    files = sorted(file for file in path.rglob("[!.]*") if file.is_file() and format_of(file))
    if not files:
        raise ValueError(f"{path}: the folder holds no file of a known kind ({known_formats()})")
    # The hub's layout: train-00000-of-00004.parquet, validation.parquet, test/0000.parquet.
    split_name = re.compile(r"(train|validation|test)\b")
    names = [split_name.match(file.relative_to(path).as_posix()) for file in files]
    if not any(names):
        return tuple(files)
    chosen = tuple(file for file, match in zip(files, names, strict=True) if match and match[1] == split)
    if not chosen:
        raise ValueError(f"{path}: the folder is laid out in splits, but holds no file named {split}…")
    return chosen


def fetch_corpus(corpus: NamedCorpus, revision: str) -> tuple[str, tuple[Path, ...]]:
    """Download a corpus of the hub through `datasets`; the commit it resolved to and its files in the local cache."""
    import datasets
    from huggingface_hub import HfApi

    try:
        # A full commit hash needs no question to the hub, so that a cached corpus can be used offline.
        is_commit = re.fullmatch("[0-9a-f]{40}", revision)
        commit = revision if is_commit else str(HfApi().dataset_info(corpus.repository, revision=revision).sha)
        dataset = datasets.load_dataset(
            corpus.repository, corpus.config, split="train", revision=commit, keep_in_memory=False
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise OSError(
            f"cannot get {corpus.repository} at revision {revision} from the hub: {error}. "
            "Check the network and the revision, or download its Parquet files and name their folder as --source"
        ) from error
    # Read as plain files: memory-mapped, as `datasets` does it, every page read would stay in our memory.
    return commit, tuple(Path(file["filename"]) for file in dataset.cache_files)


def read_blocks(sources: Sequence[Source], options: TextOptions) -> Iterator[Block]:
    """The whole corpus in order. A block never holds documents of two sources."""
    for index, source in enumerate(sources):
        texts: list[str] = []
        new_files: tuple[Path, ...] = ()
        size = input_bytes = 0
        last_file = None
        for documents, file, batch_bytes in _documents_of(source, options):
            input_bytes += batch_bytes
            if file != last_file:
                last_file = file
                new_files += (file,)
            for text in chain.from_iterable(map(cut_long, documents)):
                texts.append(text)
                size += len(text)
                if size >= BLOCK_CHARACTERS:
                    yield Block(index, texts, new_files, input_bytes)
                    texts, new_files, size, input_bytes = [], (), 0, 0
        if texts:
            yield Block(index, texts, new_files, input_bytes)


def _documents_of(source: Source, options: TextOptions) -> Iterator[FileBatch]:
    batches = chain.from_iterable(_batches_of(source, file, options) for file in source.files)
    return _joined(batches, source.rows_per_document) if source.rows_per_document > 1 else batches


def _batches_of(source: Source, file: Path, options: TextOptions) -> Iterator[FileBatch]:
    size, read = file.stat().st_size, 0
    for documents, share in read_documents(file, TextOptions() if source.repository else options):
        yield documents, file, round(share * size) - read
        read = round(share * size)


def _joined(batches: Iterable[FileBatch], rows_per_document: int) -> Iterator[FileBatch]:
    rows: list[str] = []
    for batch, file, input_bytes in batches:
        rows += batch
        complete = len(rows) // rows_per_document * rows_per_document
        starts = range(0, complete, rows_per_document)
        yield ["\n".join(rows[start : start + rows_per_document]) for start in starts], file, input_bytes
        rows = rows[complete:]
    if rows:
        yield ["\n".join(rows)], file, 0


def first_documents(sources: Sequence[Source], characters: int, options: TextOptions) -> Iterator[str]:
    """About as many characters from the first file of every source: for a quick look."""
    return sample_documents([replace(source, files=source.files[:1]) for source in sources], characters, options)


def sample_documents(sources: Sequence[Source], characters: int, options: TextOptions) -> Iterator[str]:
    """Documents from the start of every training file, about `characters` in all: a bounded sample of the corpus."""
    files = [(source, file) for source in sources if source.split == "train" for file in source.files]
    for source, file in files:
        wanted = characters // len(files)
        batches = _batches_of(source, file, options)
        for text in chain.from_iterable(documents for documents, _, _ in batches):
            yield text[:wanted]
            wanted -= len(text)
            if wanted <= 0:
                break
