"""`sharedqkv prepare`: from text to shards.

read and tokenise → find duplicates → lay out in rows → write shards → manifest.json. The corpus is a sequence of
blocks; every step does one block at a time and leaves a file in the work folder, so that the result does not depend
on the number of processes and a run that was stopped goes on where it was.
"""

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

from sharedqkv.data.assembly import EmptyCorpusError
from sharedqkv.data.blocks import BlockReport, BlockSettings
from sharedqkv.data.layouts import Layout, RowFormat
from sharedqkv.data.manifest import FORMAT, InputRecord, Manifest, SourceRecord
from sharedqkv.data.reading import TextDocuments, TextOptions
from sharedqkv.data.sources import SPLITS, Source, Split, first_documents, resolve_source, sample_documents
from sharedqkv.data.steps import ReadBlock, Steps, digest, fingerprint
from sharedqkv.data.tokenizer import (
    SMALLEST_VOCABULARY,
    check_vocab_size,
    load_tokenizer,
    tokenizer_hash,
    train_tokenizer,
)
from sharedqkv.data.work import WorkFolder, claim, find_finished
from sharedqkv.data.workers import Workers

TOKENIZER_SAMPLE = 100_000_000
"""Characters a tokenizer is trained on, at most."""
FIRST_LOOK = 100_000
"""Characters looked at first, to refuse a vocabulary that cannot hold them before reading much."""
MUCH_DROPPED = 0.1

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PrepareArguments:
    output: str
    """folder for the shards, the tokenizer and manifest.json"""
    source: tuple[str, ...]
    """text to prepare, PATH[=WEIGHT] or NAME[@REVISION][=WEIGHT]: a file or folder of .txt, .jsonl or .parquet, plain
    or .gz/.xz/.zst, or the corpus wikipedia or bookcorpus of the hub; weights are shares of the rows of the result"""
    validation_source: tuple[str, ...] = ()
    """text to validate on, named like --source"""
    validation_fraction: float = 0.005
    """share of the documents held out for validation, where there is no --validation-source"""
    text_column: str = "text"
    """name of the text in JSON Lines and Parquet"""
    text_documents: TextDocuments = "blank-line"
    """what ends a document in a .txt file"""
    tokenizer: str | None = None
    """BERT WordPiece tokenizer: a vocab.txt, a folder or a hub id"""
    train_vocab_size: int | None = None
    """train a tokenizer of this many tokens on the corpus instead"""
    cased: bool = False
    """keep upper case and accents, for a bare vocab.txt and for training"""
    layout: Layout = "chunks"
    """full rows of one document; several documents packed in a row; or sentence pairs for BERT's NSP"""
    length: int = 128
    """tokens in a row, special ones included"""
    seed: int = 0
    """for the choice of rows and of pairs"""
    processes: int = field(default_factory=lambda: os.cpu_count() or 1)
    """how many to use; the result does not depend on it"""

    def __post_init__(self) -> None:
        if not self.source:
            raise ValueError("name at least one --source")
        if (self.tokenizer is None) == (self.train_vocab_size is None):
            raise ValueError("name either a --tokenizer, or with --train-vocab-size the size of one to train")
        if self.train_vocab_size is not None and self.train_vocab_size < SMALLEST_VOCABULARY:
            raise ValueError(
                f"--train-vocab-size must be at least {SMALLEST_VOCABULARY}, for the special tokens and one character, "
                f"not {self.train_vocab_size}; some thousands are usual"
            )
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"--validation-fraction must be at least 0 and below 1, not {self.validation_fraction}")
        for name, smallest in (("length", 8), ("processes", 1)):
            if getattr(self, name) < smallest:
                raise ValueError(f"--{name} must be at least {smallest}, not {getattr(self, name)}")
        for name, allowed in (("text_documents", get_args(TextDocuments)), ("layout", get_args(Layout))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")

    def settings(self) -> dict[str, Any]:
        """What decides about the content, ready for JSON."""
        settings = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        return {name: value for name, value in settings.items() if name not in ("output", "processes")}

    def text_options(self) -> TextOptions:
        return TextOptions(self.text_column, self.text_documents)


def prepare(arguments: PrepareArguments) -> Manifest:
    """Prepare a corpus; one that is there already, undamaged and with the same settings, is left as it is."""
    output = Path(arguments.output)
    with Workers(arguments.processes) as workers, claim(output) as work:
        sources = _resolve_sources(arguments)
        tokenizer = load_tokenizer(arguments.tokenizer, arguments.cased) if arguments.tokenizer else None
        inputs = [file for source in sources for file in source.inputs()]
        manifest = find_finished(output, arguments.settings(), inputs, tokenizer)
        if manifest is None:
            work.begin(arguments.settings() | {"format": FORMAT})
            try:
                manifest = _build(arguments, sources, tokenizer, output, work, workers)
            except EmptyCorpusError:
                work.remove()
                raise
        work.remove()
    return manifest


def _resolve_sources(arguments: PrepareArguments) -> list[Source]:
    # Validation goes first: of two equal documents the first is kept, and training must not see those held out.
    sources = [resolve_source(text, "validation") for text in arguments.validation_source]
    sources += [resolve_source(text, "train") for text in arguments.source]
    if any(source.weight is not None for source in sources if source.split == "validation"):
        raise ValueError("--validation-source takes no weight: all of it is used")
    without = [source.name for source in sources if source.split == "train" and source.weight is None]
    if 0 < len(without) < len(arguments.source):
        raise ValueError(f"--source {without[0]} has no weight, others have: give all of them one, or none")
    return sources


def _build(
    arguments: PrepareArguments,
    sources: Sequence[Source],
    tokenizer: Any,
    output: Path,
    work: WorkFolder,
    workers: Workers,
) -> Manifest:
    tokenizer, folder = _keep_tokenizer(arguments, sources, tokenizer, work)
    row = RowFormat(
        length=arguments.length,
        dtype=np.dtype(np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32),
        pad=tokenizer.pad_token_id,
        cls=tokenizer.cls_token_id,
        sep=tokenizer.sep_token_id,
    )
    fraction = 0.0 if arguments.validation_source else arguments.validation_fraction
    settings = BlockSettings(arguments.layout, row, fraction, arguments.seed)
    steps = Steps(sources, settings, work, workers)
    blocks = steps.tokenise(folder / "tokenizer.json", tokenizer_hash(tokenizer), arguments.text_options())
    if not any(block.documents for block in blocks):
        files = [str(file) for source in sources for file in source.files]
        raise EmptyCorpusError(f"the corpus is empty: there is no text in {', '.join(files)}")
    # Which documents are duplicates, and so every row, depends on the whole corpus.
    basis = digest(*(block.tokens.name for block in blocks))
    reports = steps.lay_out(blocks, basis)
    kept = steps.choose_rows(blocks, reports)
    splits = {split: steps.write_shards(split, reports, kept[split], basis, output) for split in SPLITS}
    _warn(arguments, reports)
    shutil.copytree(folder, output / "tokenizer", dirs_exist_ok=True)
    manifest = Manifest(
        format=FORMAT,
        layout=arguments.layout,
        length=row.length,
        dtype=row.dtype.name,
        vocab_size=len(tokenizer),
        tokenizer_hash=tokenizer_hash(tokenizer),
        pad_id=row.pad,
        cls_id=row.cls,
        sep_id=row.sep,
        mask_id=tokenizer.mask_token_id,
        settings=arguments.settings(),
        sources=tuple(_source_record(n, source, blocks, reports, kept) for n, source in enumerate(sources)),
        train=splits["train"],
        validation=splits["validation"],
    )
    manifest.write(output)
    return manifest


def _keep_tokenizer(
    arguments: PrepareArguments, sources: Sequence[Source], tokenizer: Any, work: WorkFolder
) -> tuple[Any, Path]:
    """The tokenizer as it is in the work folder, and where; saved there, or trained, if it is not there yet."""
    files = [file for source in sources for file in source.files]
    basis = tokenizer_hash(tokenizer) if tokenizer else digest(*map(fingerprint, files))
    folder = work.tokenizer(basis[:16])
    if not folder.exists():
        size = arguments.train_vocab_size
        if tokenizer is None and size is not None:
            first = first_documents(sources, FIRST_LOOK, arguments.text_options())
            check_vocab_size(first, size, arguments.cased)
            sample = sample_documents(sources, TOKENIZER_SAMPLE, arguments.text_options())
            tokenizer = train_tokenizer(sample, size, arguments.cased)
            if len(tokenizer) < size:
                log.warning("The corpus is too small for %d tokens: the tokenizer has %d.", size, len(tokenizer))
        unfinished = work.path / "unfinished-tokenizer"
        tokenizer.save_pretrained(unfinished)
        unfinished.rename(folder)
    return load_tokenizer(str(folder)), folder


def _source_record(
    number: int,
    source: Source,
    blocks: Sequence[ReadBlock],
    reports: Sequence[BlockReport],
    kept: dict[Split, list[int]],
) -> SourceRecord:
    mine = [report for block, report in zip(blocks, reports, strict=True) if block.source == number]
    return SourceRecord(
        name=source.name,
        split=source.split,
        weight=source.weight,
        repository=source.repository,
        commit=source.commit,
        files=tuple(InputRecord(*file) for file in source.inputs()),
        text_bytes=sum(report.text_bytes for report in mine),
        documents=sum(report.documents for report in mine),
        duplicates=sum(report.duplicates for report in mine),
        repaired=sum(report.repaired for report in mine),
        rows=sum(rows[report.number] for report in mine for rows in kept.values()),
    )


def _warn(arguments: PrepareArguments, reports: Sequence[BlockReport]) -> None:
    dropped = sum(report.splits["train"].dropped_tokens for report in reports)
    in_rows = sum(report.splits["train"].rows for report in reports) * (arguments.length - 2)
    share = dropped / (dropped + in_rows)
    if arguments.layout == "chunks" and share > MUCH_DROPPED:
        log.warning("%.0f %% of the text is at ends of documents that fill no row: use --layout packed", 100 * share)
    if not any(report.splits["validation"].rows for report in reports):
        log.warning("There is no validation text: use --validation-source or a larger --validation-fraction")
