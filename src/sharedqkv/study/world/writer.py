"""A world as files: text that `sharedqkv prepare` reads, and tasks that `sharedqkv finetune` reads."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sharedqkv.data.files import atomic_write
from sharedqkv.study.world.tasks import SPLITS, TASKS
from sharedqkv.study.world.world import World

VALIDATION_SHARE = 0.05
"""Stories to validate on, for each one to train on."""


def write_world(folder: Path, world: World, documents: int, rows: Mapping[str, int]) -> None:
    """`documents` stories to train on in corpus/, and so many `rows` of each split of every task in tasks/."""
    unknown = [split for split in rows if split not in SPLITS]
    if unknown:
        raise ValueError(f"rows: no split {', '.join(unknown)}; tasks of the world have {', '.join(SPLITS)}")
    if documents < 1:
        raise ValueError(f"documents must be at least 1, not {documents}")
    validation = max(1, round(VALIDATION_SHARE * documents))
    for split, count, start in (("train", documents, 0), ("validation", validation, documents)):
        stories = ({"text": text} for text in world.documents(count, start))
        _write_lines(folder / "corpus" / f"{split}.jsonl", stories)
    for task in TASKS:
        for split, count in rows.items():
            _write_lines(folder / "tasks" / task / f"{split}.jsonl", world.task(task, split, count))


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        for row in rows:
            file.write(f"{json.dumps(row)}\n".encode())
