"""Checkpoints that are whole or do not count.

After all files of a checkpoint are on disk, `complete.json` is written with their hashes. A checkpoint without it, or
with a file that does not match, is never resumed from: the newest complete one is, and what was skipped is said.
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from sharedqkv.data.files import atomic_write, sha256_of

MARKER = "complete.json"
PREFIX = "checkpoint-"


@dataclass(frozen=True)
class Skipped:
    path: Path
    reason: str


def checkpoints_in(folder: Path) -> list[Path]:
    """All checkpoints, complete or not, newest step first."""
    found = [path for path in folder.glob(f"{PREFIX}*") if path.is_dir() and step_of(path) is not None]
    return sorted(found, key=lambda path: step_of(path) or 0, reverse=True)


def step_of(path: Path) -> int | None:
    number = path.name.removeprefix(PREFIX)
    return int(number) if number.isdecimal() else None


def commit(checkpoint: Path) -> None:
    """Make all files durable, then say so."""
    hashes = {}
    for path in sorted(path for path in checkpoint.rglob("*") if path.is_file()):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        hashes[str(path.relative_to(checkpoint))] = sha256_of(path)
    with atomic_write(checkpoint / MARKER) as file:
        file.write(json.dumps({"sha256": hashes}, indent=1).encode())


def damage_of(checkpoint: Path) -> str | None:
    """Why this checkpoint must not be used; None when it is complete and unchanged."""
    try:
        expected = json.loads((checkpoint / MARKER).read_text())["sha256"]
    except FileNotFoundError:
        return f"it was not finished ({MARKER} is missing)"
    except (ValueError, KeyError, OSError) as error:
        return f"{MARKER} cannot be read ({error})"
    for name, sha256 in expected.items():
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is missing"
        if sha256_of(path) != sha256:
            return f"{name} is damaged (sha256 differs)"
    return None


def newest_complete(folder: Path) -> tuple[Path | None, list[Skipped]]:
    skipped: list[Skipped] = []
    for checkpoint in checkpoints_in(folder):
        reason = damage_of(checkpoint)
        if reason is None:
            return checkpoint, skipped
        skipped.append(Skipped(checkpoint, reason))
    return None, skipped


def rotate(folder: Path, keep: int) -> None:
    """Delete all but the newest `keep` committed checkpoints, and what unfinished saves left; only after a commit."""
    committed = [path for path in checkpoints_in(folder) if (path / MARKER).is_file()]
    for path in checkpoints_in(folder):
        if path not in committed[:keep]:
            remove(path)


def remove(checkpoint: Path) -> None:
    (checkpoint / MARKER).unlink(missing_ok=True)  # first: a crash must leave no half-deleted one that looks whole
    shutil.rmtree(checkpoint)
