"""The folder one run leaves behind, the one form that every command reads and writes.

`run.json` (what it is and how it ended), `metrics.jsonl` (a record a line), `model/`, `checkpoints/`, `plots/`.
"""

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import torch

from sharedqkv.data.files import atomic_write

State = Literal["running", "done", "stopped", "failed"]
_PACKAGES = (
    "sharedqkv",
    "torch",
    "transformers",
    "accelerate",
    "tokenizers",
    "safetensors",
    "numpy",
    "datasets",
    "triton",
)


class RunFolder:
    def __init__(self, path: str | Path):
        self.path = Path(path)

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def plots(self) -> Path:
        return self.path / "plots"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def info_file(self) -> Path:
        return self.path / "run.json"

    def exists(self) -> bool:
        return self.info_file.exists()

    def create(self, info: dict[str, Any]) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.write_info({**info, "environment": environment(), "sittings": []})
        except OSError as error:
            raise OSError(f"{self.path} cannot be written ({error}): choose another --output") from error

    def info(self) -> dict[str, Any]:
        try:
            return json.loads(self.info_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.path} is no run folder: {self.info_file.name} is missing") from None
        except ValueError as error:
            raise ValueError(f"{self.info_file} is damaged ({error})") from None

    def write_info(self, info: dict[str, Any]) -> None:
        with atomic_write(self.info_file) as file:
            file.write(json.dumps(info, indent=2, ensure_ascii=False).encode() + b"\n")

    def set_state(self, state: State, **more: Any) -> None:
        self.write_info({**self.info(), "state": state, **more})

    def begin_sitting(self, resumed_from: str | None) -> None:
        info = self.info()
        sitting = {"started": now(), "command": [Path(sys.argv[0]).name, *sys.argv[1:]], "resumed_from": resumed_from}
        self.write_info({**info, "state": "running", "sittings": [*info["sittings"], sitting]})

    def append_metrics(self, record: dict[str, Any]) -> None:
        with open(self.metrics_file, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        if not self.metrics_file.exists():
            return []
        records = []
        for line in self.metrics_file.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                break  # a line cut off by a crash; what follows a crash is written anew
        return records

    def cut_metrics_after(self, step: int) -> None:
        """Forget what came after the checkpoint a run resumes from: it is about to happen again."""
        kept = [record for record in self.metrics() if record["step"] <= step]
        with atomic_write(self.metrics_file) as file:
            file.write("".join(json.dumps(record) + "\n" for record in kept).encode())


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def environment() -> dict[str, Any]:
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "devices": devices or ["cpu"],
        "cpu_count": os.cpu_count(),
        "git": git_state(),
    }


def git_state() -> dict[str, Any] | None:
    """The commit this code is at: of the checkout it runs from, or named in SHAREDQKV_GIT_SHA for a bare copy."""
    if "SHAREDQKV_GIT_SHA" in os.environ:
        return {"sha": os.environ["SHAREDQKV_GIT_SHA"], "dirty": None}

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return {"sha": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.CalledProcessError):
        return None
