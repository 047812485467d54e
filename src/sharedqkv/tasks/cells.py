"""The cells of a fine-tuning run: a task with a seed, what it left behind, and whether it is finished.

`cells/<task>/<seed>.json` is the cell's record, written last; `predictions/<task>/<split>/<seed>.jsonl` are its
predictions (`<seed>.columns.json.xz` in records that are only read); `models/<task>/<seed>/` is the model, where it is
kept.
"""

import hashlib
import json
import lzma
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sharedqkv.data.files import atomic_write, sha256_of
from sharedqkv.tasks.task import Record, Split


def settings_sha256(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n")


def read_json(path: Path) -> Any | None:
    """None where there is no such file, or none that can be read: what is broken is made anew."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def predictions_file(run: Path, split: Split, seed: int) -> Path:
    return run / "predictions" / split.config / split.name / f"{seed}.jsonl"


def write_predictions(path: Path, records: Sequence[Record]) -> str:
    """Returns the file's hash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
    return sha256_of(path)


def compress_predictions(path: Path) -> None:
    """For records that are only read, as `read_predictions` does as before; a run cannot be gone on with."""
    columns = to_columns(read_predictions(path))
    with atomic_write(_compressed(path)) as file:
        file.write(lzma.compress(json.dumps(columns, ensure_ascii=False).encode()))
    path.unlink()


def to_columns(records: Sequence[Record], without: Sequence[str] = ()) -> dict[str, list[Any]]:
    """Smaller than line by line, and read ten times as fast. Numbers, the predictions of a regression too, keep four
    decimals, but for those inside of SQuAD's scores."""
    kept = [key for key in next(iter(records), {}) if key not in without]
    return {key: [_short(record[key]) for record in records] for key in kept}


def from_columns(columns: Mapping[str, Sequence[Any]]) -> list[Record]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _compressed(path: Path) -> Path:
    return path.with_suffix(".columns.json.xz")


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(part) for part in value]
    return round(value, 4) if isinstance(value, float) else value


def has_predictions(path: Path) -> bool:
    return path.is_file() or _compressed(path).is_file()


def read_predictions(path: Path) -> list[Record]:
    if not path.exists() and has_predictions(path):
        path = _compressed(path)
    try:
        if path.suffix == ".xz":
            return from_columns(json.loads(lzma.decompress(path.read_bytes())))
        with open(path, encoding="utf-8") as lines:  # not str.splitlines, which also cuts at U+2028 inside a text
            return [json.loads(line) for line in lines]
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is missing: run `sharedqkv finetune` again, it repeats what is not whole"
        ) from None
    except (ValueError, lzma.LZMAError) as error:
        raise ValueError(f"{path} is damaged ({error}): delete it and run `sharedqkv finetune` again") from None


class Cell:
    """One task with one seed in a run folder."""

    def __init__(self, run: Path, task: str, seed: int):
        self.run = run
        self.task = task
        self.seed = seed

    def __str__(self) -> str:
        return f"{self.task}, seed {self.seed}"

    @property
    def record_file(self) -> Path:
        return self.run / "cells" / self.task / f"{self.seed}.json"

    @property
    def error_file(self) -> Path:
        return self.run / "cells" / self.task / f"{self.seed}.error.txt"

    @property
    def model(self) -> Path:
        return self.run / "models" / self.task / str(self.seed)

    def record(self) -> dict[str, Any] | None:
        return read_json(self.record_file)

    def finished(self, settings: Mapping[str, Any], data: Mapping[Split, str], keep_model: bool) -> bool:
        """Whether it was run with these settings and its predictions of these splits (with their hashes) are whole."""
        record = self.record()
        if record is None or record.get("settings_sha256") != settings_sha256(settings):
            return False
        if keep_model and not self.model.is_dir():
            return False
        return all(self._has_whole(record, split, sha256) for split, sha256 in data.items())

    def _has_whole(self, record: Mapping[str, Any], split: Split, data_sha256: str) -> bool:
        kept = record["splits"].get(f"{split.config}/{split.name}")
        file = predictions_file(self.run, split, self.seed)
        if kept is None or kept["data_sha256"] != data_sha256 or not file.is_file():
            return False
        return sha256_of(file) == kept["predictions_sha256"]

    def forget(self) -> None:
        """Before it is run again: a record or a model of other settings must not outlive them."""
        self.record_file.unlink(missing_ok=True)
        shutil.rmtree(self.model, ignore_errors=True)

    def save_model(self, model: Any, tokenizer: Any) -> None:
        """Into a folder beside first: the model is there whole or not at all."""
        unfinished = self.model.with_name(f".{self.seed}")
        shutil.rmtree(unfinished, ignore_errors=True)
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        shutil.rmtree(self.model, ignore_errors=True)
        os.replace(unfinished, self.model)


def kept_cells(run: Path) -> list[Cell]:
    """Every cell with a record, by task and seed."""
    files = (run / "cells").glob("*/*.json")
    cells = [Cell(run, file.parent.name, int(file.stem)) for file in files if file.stem.isdigit()]
    return sorted(cells, key=lambda cell: (cell.task, cell.seed))
