"""Reading a prepared corpus: rows by number, from memory-mapped files."""

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from sharedqkv.data.layouts import Layout
from sharedqkv.data.manifest import REMEDY, DamagedCorpusError, FileRecord, Manifest
from sharedqkv.data.sources import Split


class ShardedRows:
    """The rows of one split. Cheap to pickle: every process maps the files itself, when it first needs them."""

    def __init__(self, folder: Path, split: Split, manifest: Manifest):
        self.folder = folder
        self.split = split
        self.manifest = manifest
        self._ends = list(accumulate(shard.rows for shard in manifest.split(split).shards))
        self._maps: dict[str, np.ndarray] = {}

    @classmethod
    def open(cls, folder: str | Path, split: Split, verify: bool = False) -> "ShardedRows":
        """Check what is cheap to check (all files there, of the right size and shape); with `verify` every byte."""
        folder = Path(folder)
        manifest = Manifest.read(folder)
        if verify:
            manifest.check_hashes(folder)
        else:
            manifest.check_sizes(folder)
        rows = cls(folder, split, manifest)
        if not len(rows):
            raise ValueError(
                f"{folder} holds no {split} rows: prepare it with --validation-source or a larger --validation-fraction"
            )
        for number in range(len(manifest.split(split).shards)):
            rows._shard(number)
        return rows

    @property
    def length(self) -> int:
        return self.manifest.length

    @property
    def layout(self) -> Layout:
        return self.manifest.layout

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> np.ndarray:
        shard, row = self._locate(index)
        return self._shard(shard)[row].astype(np.int64)

    def next_sentence(self, index: int) -> int:
        """BERT's label: 0 when B follows A, 1 when B is from elsewhere."""
        shard, row = self._locate(index)
        record = self.manifest.split(self.split).shards[shard]
        if record.next_sentence is None:
            raise ValueError(f"{self.folder} has layout {self.layout}: only pairs have next-sentence labels")
        return int(self._map(record.next_sentence, (record.rows,), "uint8")[row])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}}

    def _locate(self, index: int) -> tuple[int, int]:
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        shard = bisect_right(self._ends, index)
        return shard, index - (self._ends[shard - 1] if shard else 0)

    def _shard(self, number: int) -> np.ndarray:
        record = self.manifest.split(self.split).shards[number]
        return self._map(record.file, (record.rows, self.length), self.manifest.dtype)

    def _map(self, file: FileRecord, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        if file.name not in self._maps:
            path = self.folder / file.name
            try:
                mapped = np.load(path, mmap_mode="r")
            except ValueError as error:
                raise DamagedCorpusError(f"{path} is no .npy file any more ({error}); {REMEDY}") from error
            if mapped.shape != shape or mapped.dtype != dtype:
                raise DamagedCorpusError(f"{path} holds {mapped.dtype} {mapped.shape}, not {dtype} {shape}; {REMEDY}")
            self._maps[file.name] = mapped
        return self._maps[file.name]
