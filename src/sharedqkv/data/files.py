"""Writing a file so that it is there whole or not at all, and telling whether it is still what was written."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: Path, folder: Path | None = None) -> Iterator[BinaryIO]:
    """Open a temporary file in `folder` (default: beside `path`, same file system) that becomes `path` at the end."""
    temporary = (folder or path.parent) / f".{path.name}.{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
