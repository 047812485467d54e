"""The work folder: what is finished so far, so that a run that was stopped goes on where it was."""

import json
import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from sharedqkv.data.files import atomic_write
from sharedqkv.data.manifest import MANIFEST, REMEDY, DamagedCorpusError, Manifest
from sharedqkv.data.tokenizer import tokenizer_hash

OURS = re.compile(r"(train|validation)-\d+\.(next_sentence\.)?npy|tokenizer")

log = logging.getLogger(__name__)


class WorkFolder:
    """`.work` inside the output folder. Names carry a hash of what their content depends on: when an input file is
    replaced, what was made from it is not found any more, and made anew."""

    def __init__(self, output: Path):
        self.path = output / ".work"
        self._settings = self.path / "settings.json"

    def tokenizer(self, basis: str) -> Path:
        return self.path / f"tokenizer-{basis}"

    def tokens(self, block: int, basis: str) -> Path:
        return self.path / "tokens" / f"{block:06}-{basis}.npz"

    def rows(self, block: int, basis: str) -> Path:
        return self.path / "rows" / f"{block:06}-{basis}.npz"

    def duplicates(self, share: int, basis: str) -> Path:
        return self.path / f"duplicates-{share:04}-{basis}.npy"

    def blocks(self, basis: str) -> Path:
        """Written when the whole corpus was read: the source of every block and its tokens."""
        return self.path / f"blocks-{basis}.json"

    def begin(self, settings: dict[str, Any]) -> None:
        """Start, or go on with what was started with the same settings."""
        before = read_json(self._settings)
        if before is not None and before != settings:
            raise ValueError(
                f"{self.path} was begun with other settings ({_difference(before, settings)}): go back to those, "
                f"choose another --output, or delete {self.path} to begin anew"
            )
        for folder in ("tokens", "rows"):
            (self.path / folder).mkdir(exist_ok=True)
        write_json(self._settings, settings)

    def remove(self) -> None:
        """With the output folder, if nothing else is in it."""
        shutil.rmtree(self.path)
        with suppress(OSError):
            self.path.parent.rmdir()

    def remove_if_useless(self) -> None:
        """When not one block is finished, leave nothing that would stand in the way of a corrected command."""
        if self.path.exists() and not any(self.path.glob("tokens/*.npz")):
            self.remove()


@contextmanager
def claim(output: Path) -> Iterator[WorkFolder]:
    """The work folder of `output`, for this process alone."""
    foreign = [path.name for path in output.iterdir() if not OURS.fullmatch(path.name)] if output.is_dir() else []
    if foreign and not any((output / name).exists() for name in (MANIFEST, ".work")):
        raise ValueError(f"{output} holds other things ({foreign[0]}) and no prepared corpus: choose another --output")
    work = WorkFolder(output)
    lock = FileLock(work.path / "lock", timeout=0)
    try:
        work.path.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise ValueError(
            f"another sharedqkv prepare is writing to {output}: wait, or choose another --output"
        ) from None
    except OSError as error:
        remedy = "make the folder writable, or choose another --output"
        raise OSError(f"cannot write to {output} ({error.strerror}): {remedy}") from error
    try:
        yield work
    finally:
        work.remove_if_useless()
        lock.release()


def find_finished(
    output: Path, settings: dict[str, Any], inputs: list[tuple[str, int]], tokenizer: Any
) -> Manifest | None:
    """The corpus in `output`, when it is whole and what is asked for; None when it is to be made (anew).

    `inputs`: name and size of every input file; `tokenizer`: None when it is trained on them.
    """
    if not (output / MANIFEST).exists():
        return None
    manifest = Manifest.read(output)
    files = [(file.path, file.bytes) for source in manifest.sources for file in source.files]
    before = manifest.settings | {"tokenizer": manifest.tokenizer_hash, "input files": files}
    hash_now = tokenizer_hash(tokenizer) if tokenizer else manifest.tokenizer_hash
    now = settings | {"tokenizer": hash_now, "input files": inputs}
    if before != now:
        raise ValueError(
            f"{output} holds a corpus prepared with other settings ({_difference(before, now)}): "
            "choose another --output, or delete this one"
        )
    changed = [name for name, _ in inputs if Path(name).stat().st_mtime > (output / MANIFEST).stat().st_mtime]
    if changed:
        raise ValueError(
            f"{changed[0]} was changed after {output} was prepared from it: choose another --output, or delete this one"
        )
    try:
        manifest.check_hashes(output)
    except DamagedCorpusError as error:
        log.warning("%s", str(error).removesuffix(REMEDY) + "making the shards anew")
        return None
    log.warning("%s is already prepared with these settings, and undamaged.", output)
    return manifest


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return "; ".join(f"{name} was {_short(before.get(name))}, now {_short(now.get(name))}" for name in names)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def write_json(path: Path, value: Any) -> None:
    with atomic_write(path) as file:
        file.write(json.dumps(value).encode())
