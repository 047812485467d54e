"""What workers do with one block: text to ids, ids to rows. Each step leaves one file, whole or not at all."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from zipfile import BadZipFile

import numpy as np
from tokenizers import Tokenizer

from sharedqkv.data.deduplication import HASH_BYTES, document_hash
from sharedqkv.data.files import atomic_write
from sharedqkv.data.layouts import Document, Layout, RowFormat, lay_out, split_lengths
from sharedqkv.data.sentences import split_sentences
from sharedqkv.data.sources import SPLITS, Split
from sharedqkv.data.tokenizer import WordEncoder

TEXTS_AT_ONCE = 500_000
"""In characters: the words of a whole block at once would take needless memory."""


@dataclass(frozen=True)
class TokenisedBlock:
    ids: np.ndarray
    sentence_lengths: np.ndarray
    """In ids. Only `pairs` knows sentences: else a document is one."""
    sentences: np.ndarray
    """How many each document has."""
    hashes: np.ndarray
    text_bytes: int
    repaired: int

    def documents(self) -> list[Document]:
        sentences = split_lengths(self.ids, self.sentence_lengths)
        bounds = np.concatenate([[0], np.cumsum(self.sentences)]).tolist()
        return [sentences[start:end] for start, end in pairwise(bounds)]


@dataclass(frozen=True)
class BlockSettings:
    """What decides how a block is laid out."""

    layout: Layout
    row: RowFormat
    validation_fraction: float
    seed: int


@dataclass(frozen=True, slots=True)
class SplitCount:
    documents: int
    rows: int
    dropped_tokens: int


@dataclass(frozen=True, slots=True)
class BlockReport:
    number: int
    documents: int
    duplicates: int
    text_bytes: int
    repaired: int
    splits: dict[Split, SplitCount]


def tokenise_block(path: Path, texts: list[str], input_bytes: int, tokenizer_file: Path, by_sentence: bool) -> int:
    """Encode and hash the documents of a block, unless that is done; gives `input_bytes` back, for progress."""
    if path.exists():
        return input_bytes
    documents, hashes = [], []
    text_bytes = repaired = 0
    for text in map(str.strip, texts):
        if not text:
            continue
        try:
            data = text.encode()
        except UnicodeEncodeError:
            text = _without_surrogates(text)
            data = text.encode()
            repaired += 1
        documents.append(split_sentences(text) if by_sentence else [text])
        hashes.append(document_hash(data))
        text_bytes += len(data)
    encoder = _encoder(tokenizer_file)
    ids = [encoded for batch in _batches(documents) for encoded in encoder.encode(batch)]
    block = TokenisedBlock(
        ids=np.concatenate([np.empty(0, encoder.dtype), *ids]),
        sentence_lengths=np.array([len(encoded) for encoded in ids], np.int32),
        sentences=np.array([len(document) for document in documents], np.int32),
        hashes=np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, HASH_BYTES),
        text_bytes=text_bytes,
        repaired=repaired,
    )
    with atomic_write(path) as file:
        np.savez(file, **vars(block))
    return input_bytes


def load_tokenised(path: Path) -> TokenisedBlock:
    block = load_arrays(path, *TokenisedBlock.__dataclass_fields__)
    return TokenisedBlock(**{**block, "text_bytes": int(block["text_bytes"]), "repaired": int(block["repaired"])})


def load_arrays(path: Path, *names: str) -> dict[str, Any]:
    """Some arrays of a file in the work folder."""
    try:
        with np.load(path) as arrays:
            return {name: arrays[name] for name in names}
    except (BadZipFile, KeyError, ValueError, EOFError) as error:
        raise ValueError(f"{path} is damaged ({error}): delete it and run the same command again") from error


def lay_out_block(
    tokens: Path, path: Path, number: int, split: Split, duplicates: np.ndarray, settings: BlockSettings
) -> BlockReport:
    """Turn a block into rows, without the documents at the places `duplicates`, unless that is done."""
    if path.exists():
        return _load_report(path)
    block = load_tokenised(tokens)
    kept = np.ones(len(block.hashes), bool)
    kept[duplicates] = False
    held_out = np.ones(len(kept), bool) if split == "validation" else _held_out(block, settings.validation_fraction)
    documents = block.documents()
    arrays: dict[str, Any] = {}
    counts = {}
    for name in SPLITS:
        mine = np.flatnonzero(kept & (held_out if name == "validation" else ~held_out))
        random = Random(f"{settings.seed} {name} {number}")
        rows = lay_out(settings.layout, [documents[place] for place in mine], settings.row, random)
        arrays |= {f"{name}_ids": rows.ids, f"{name}_next_sentence": rows.next_sentence}
        counts[name] = SplitCount(len(mine), len(rows.ids), rows.dropped_tokens)
    report = BlockReport(number, len(documents), len(duplicates), block.text_bytes, block.repaired, counts)
    with atomic_write(path) as file:
        np.savez(file, report=np.array(json.dumps(asdict(report))), **arrays)
    return report


def _load_report(path: Path) -> BlockReport:
    report = json.loads(str(load_arrays(path, "report")["report"]))
    return BlockReport(**{**report, "splits": {name: SplitCount(**count) for name, count in report["splits"].items()}})


def load_rows(path: Path, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """The ids and the next-sentence labels of a block's rows."""
    ids, next_sentence = load_arrays(path, f"{split}_ids", f"{split}_next_sentence").values()
    return ids, next_sentence


def _held_out(block: TokenisedBlock, fraction: float) -> np.ndarray:
    """By hash: whether a document is held out depends on nothing but its text."""
    uniform = np.ascontiguousarray(block.hashes[:, :8]).view("<u8")[:, 0] / 2.0**64
    return uniform < fraction


@lru_cache(maxsize=1)
def _encoder(tokenizer_file: Path) -> WordEncoder:
    return WordEncoder(Tokenizer.from_file(str(tokenizer_file)))


def _batches(documents: Sequence[list[str]]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for sentence in (sentence for document in documents for sentence in document):
        batch.append(sentence)
        size += len(sentence)
        if size >= TEXTS_AT_ONCE:
            yield batch
            batch, size = [], 0
    yield batch


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
