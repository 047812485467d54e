"""The model to fine-tune: what it is, where it comes from, and what it can take."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from sharedqkv.data.files import sha256_of
from sharedqkv.models import SharedQKVConfig
from sharedqkv.training.run_folder import RunFolder

_HEADS = ("classifier.", "qa_outputs.")
_DECISIVE = ("config.json", "tokenizer.json", "vocab.txt")
"""Files that decide on the result beside the weights."""


@dataclass(frozen=True)
class Checkpoint:
    folder: Path
    parent: str
    """The pre-training run, or the path or hub id as it was given."""
    variant: str
    max_positions: int
    vocab_size: int
    pretraining_seed: int | None
    """Known for checkpoints of our own pre-training."""
    sha256: str
    """Of configuration, tokenizer and weights."""
    has_head: bool
    """Whether it was fine-tuned already."""

    def describe(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in ("folder", "parent")}


def find_checkpoint(model: str) -> Checkpoint:
    """From a run folder, a folder with a model, or a hub id."""
    path, seed, parent = Path(model), None, model
    run = next((RunFolder(folder) for folder in (path, path.parent) if (folder / "run.json").is_file()), None)
    if run is not None and run.info()["kind"] == "pretrain" and path in (run.path, run.model):
        if not run.model.is_dir():
            raise FileNotFoundError(f"{run.path} has no {run.model.name}/: its state is {run.info()['state']!r}")
        folder, seed, parent = run.model, run.info()["recipe"]["seed"], str(run.path)
    elif path.exists():
        folder = path
    else:
        folder = _download(model)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"--model {model}: {folder} holds no config.json; expected a model's or a run's folder")
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise FileNotFoundError(f"--model {model}: {folder} holds no *.safetensors, the only weights we read")
    config = SharedQKVConfig.from_pretrained(folder)
    return Checkpoint(
        folder=folder,
        parent=parent,
        variant=config.attention_variant,
        max_positions=config.max_position_embeddings,
        vocab_size=config.vocab_size,
        pretraining_seed=seed,
        sha256=_sha256_of_all([*(folder / name for name in _DECISIVE if (folder / name).is_file()), *weights]),
        has_head=any(_has_head(file) for file in weights),
    )


def _download(model: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=["*.json", "*.safetensors", "*.txt"]))
    except (OSError, ValueError) as error:
        raise FileNotFoundError(f"--model {model}: no such folder, nor to be had from the hub ({error})") from None


def _has_head(weights: Path) -> bool:
    try:
        with safe_open(weights, framework="pt") as file:
            return any(name.startswith(_HEADS) for name in file.keys())  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{weights}: the weights are damaged or cut off ({error}); copy the model again") from None


def _sha256_of_all(files: list[Path]) -> str:
    return hashlib.sha256(json.dumps([sha256_of(file) for file in files]).encode()).hexdigest()
