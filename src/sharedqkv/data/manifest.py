"""What a prepared corpus is: `manifest.json`, written last, so that its presence means that all is there."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from sharedqkv.data.files import atomic_write, sha256_of
from sharedqkv.data.layouts import Layout
from sharedqkv.data.sources import Split
from sharedqkv.data.tokenizer import tokenizer_hash
from sharedqkv.schema import build

MANIFEST = "manifest.json"
FORMAT = 1
"""Raise it whenever the same arguments no longer give the same files."""


class DamagedCorpusError(ValueError):
    """A file of a prepared corpus is not what was written."""


@dataclass(frozen=True)
class FileRecord:
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class ShardRecord:
    file: FileRecord
    rows: int
    tokens: int
    """Ids that are text: neither [CLS], [SEP] nor [PAD]."""
    next_sentence: FileRecord | None
    """The labels, for `pairs` only."""


@dataclass(frozen=True)
class SplitRecord:
    documents: int
    rows: int
    tokens: int
    dropped_tokens: int
    """Tokens of these documents that found no place in a row, before any thinning by weights."""
    shards: tuple[ShardRecord, ...]


@dataclass(frozen=True)
class InputRecord:
    path: str
    bytes: int


@dataclass(frozen=True)
class SourceRecord:
    name: str
    split: str
    weight: float | None
    repository: str | None
    commit: str | None
    files: tuple[InputRecord, ...]
    text_bytes: int
    documents: int
    """As read, duplicates included."""
    duplicates: int
    repaired: int
    """Documents with bytes that were not UTF-8 and are replaced."""
    rows: int
    """Rows of it in the result, training and validation together."""


@dataclass(frozen=True)
class Manifest:
    format: int
    layout: Layout
    length: int
    dtype: str
    vocab_size: int
    tokenizer_hash: str
    pad_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    settings: dict[str, Any]
    """The arguments of `sharedqkv prepare` that decide about the content."""
    sources: tuple[SourceRecord, ...]
    train: SplitRecord
    validation: SplitRecord

    def split(self, name: Split) -> SplitRecord:
        return {"train": self.train, "validation": self.validation}[name]

    def files(self) -> list[FileRecord]:
        shards = (*self.train.shards, *self.validation.shards)
        return [file for shard in shards for file in (shard.file, shard.next_sentence) if file]

    def check_tokenizer(self, tokenizer: Any) -> None:
        found = tokenizer_hash(tokenizer)
        if found != self.tokenizer_hash:
            name = getattr(tokenizer, "name_or_path", None) or "of no name"
            raise ValueError(
                f"the corpus was prepared with another tokenizer: {MANIFEST} has {self.tokenizer_hash[:16]}…, the one "
                f"given ({name}) is {found[:16]}…. Load the one in the corpus' folder tokenizer/, or prepare the text "
                "anew with this one"
            )

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        path = folder / MANIFEST
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path} is missing: {folder} is no finished corpus. Run `sharedqkv prepare --output {folder} …` (the "
                "same command again, if it was stopped: it goes on where it was)"
            ) from None
        except ValueError as error:
            raise DamagedCorpusError(f"{path} is damaged ({error}): {REMEDY_MANIFEST}") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise DamagedCorpusError(f"{path} is not a manifest of format {FORMAT}: {REMEDY_MANIFEST}")
        return _record(cls, data, str(path))

    def write(self, folder: Path) -> None:
        with atomic_write(folder / MANIFEST) as file:
            file.write(json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False).encode() + b"\n")

    def check_sizes(self, folder: Path) -> None:
        for record in self.files():
            path = folder / record.name
            if not path.is_file():
                raise DamagedCorpusError(f"{path} is missing; {REMEDY}")
            if path.stat().st_size != record.bytes:
                raise DamagedCorpusError(f"{path} is {path.stat().st_size} bytes long, not {record.bytes}; {REMEDY}")

    def check_hashes(self, folder: Path) -> None:
        self.check_sizes(folder)
        for record in self.files():
            if sha256_of(folder / record.name) != record.sha256:
                raise DamagedCorpusError(f"{folder / record.name} is not what was written (sha256 differs); {REMEDY}")


REMEDY = "run the same sharedqkv prepare command again: it finds the damage and makes the shards anew"
REMEDY_MANIFEST = "delete it and run the same sharedqkv prepare command again"

Record = TypeVar("Record")


def _record(kind: type[Record], data: dict[str, Any], where: str) -> Record:
    """A dataclass that holds others, from JSON; unknown and missing keys are errors."""
    hints = get_type_hints(kind)
    return build(kind, {name: _nested(hints.get(name), value, where) for name, value in data.items()}, where)


def _nested(hint: Any, value: Any, where: str) -> Any:
    for part in (hint, *get_args(hint)):
        if dataclasses.is_dataclass(part) and isinstance(value, dict):
            return _record(part, value, where)  # type: ignore[arg-type]
        if dataclasses.is_dataclass(part) and isinstance(value, list):
            return tuple(_nested(part, item, where) for item in value)
    return value
