"""What a study is: who is compared, on what, with which seeds and settings. `plan` makes one of a file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sharedqkv import schema
from sharedqkv.data.prepare import PrepareArguments
from sharedqkv.evidence.report.collect import Entrant
from sharedqkv.models import SharedQKVConfig
from sharedqkv.robustness.grid import Plan
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.training.recipe import PretrainRecipe

BERT_VOCABULARY = 30522


@dataclass(frozen=True)
class StudyFile:
    title: str
    """of the report"""
    variants: tuple[str, ...]
    """who is compared, like shared or standard:num_hidden_layers=10; the first is the baseline"""
    corpus: dict[str, Any]
    """fields of `sharedqkv prepare`, or {world: documents, ...} for the built-in world"""
    pretrain: dict[str, Any]
    """{recipe: name or path, ...} and fields of a pre-training recipe"""
    description: str = ""
    """what the study is for"""
    positions: tuple[str, ...] = ()
    """absolute, rotary or both: every variant is run with each; default: the recipe's"""
    seeds: int | tuple[int, ...] = 1
    """of pre-training, a count or a list"""
    finetune: dict[str, Any] = field(default_factory=dict)
    """{tasks: ..., seeds: ..., data: folder} and fields of a fine-tuning recipe; none: no fine-tuning"""
    robust: dict[str, Any] = field(default_factory=dict)
    """{noise: ..., severity: ..., seeds: ..., domains: ..., examples: ...}; none: no such stage"""
    bench: dict[str, Any] = field(default_factory=dict)
    """{rows: ..., length: ..., repeats: ...}: time and memory of a step; none: no such stage"""
    questions: tuple[dict[str, Any], ...] = ()
    """[{model: ..., against: [...]}, ...]: comparisons that are not made anyway, each list corrected as one family"""
    sentence: str = ""
    """whose attention is shown for each model"""
    threads: int = 1
    """of a cell on a CPU; numbers depend on it, so that it is fixed"""
    gpus_per_run: int = 1
    """of a pre-training run; more than one go through `accelerate launch`"""

    def __post_init__(self) -> None:
        _at_least_one(self, "threads", "gpus_per_run")


@dataclass(frozen=True)
class Question:
    """Names as in `variants`."""

    model: str
    against: tuple[str, ...]


@dataclass(frozen=True)
class Bench:
    rows: int = 16
    """Rows of a step."""
    length: int = 128
    repeats: int = 5

    def __post_init__(self) -> None:
        _at_least_one(self, "rows", "length", "repeats")


@dataclass(frozen=True)
class WorldSizes:
    world: int
    """Documents of the corpus."""
    seed: int = 0
    train: int = 2000
    """Rows of each task's training set."""
    validation: int = 400
    out_of_domain: int = 400

    def __post_init__(self) -> None:
        _at_least_one(self, "world", "train", "validation", "out_of_domain")


def _at_least_one(settings: Any, *names: str) -> None:
    for name in names:
        if getattr(settings, name) < 1:
            raise ValueError(f"{name} must be at least 1, not {getattr(settings, name)}")


@dataclass(frozen=True)
class Study:
    name: str
    file: StudyFile
    text: str
    """The YAML."""
    entrants: list[Entrant]
    seeds: list[int]
    world: WorldSizes | None
    prepare: dict[str, Any]
    """Fields of PrepareArguments, but for its output."""
    pretrain: dict[str, Any]
    """Fields of PretrainRecipe, but for data, output, seed and the entrant's own."""
    tasks: dict[str, FinetuneRecipe]
    finetune_seeds: list[int]
    task_data: str | None
    """Folder; None for the hub, or with a world for its own tasks."""
    robust: Plan | None
    bench: Bench | None

    def recipe(self, entrant: Entrant, seed: int, corpus: Path, output: Path) -> PretrainRecipe:
        values = {
            **self.pretrain,
            "data": str(corpus),
            "output": str(output),
            "seed": seed,
            "attention_variant": entrant.variant,
            "attention_options": entrant.attention_options,
            "position_embedding_type": entrant.position_embedding_type,
            "model": {**self.pretrain.get("model", {}), **entrant.model},
        }
        return schema.build(PretrainRecipe, values, self.name)

    def model_config(self, entrant: Entrant, length: int) -> SharedQKVConfig:
        """Of its model, before there is a tokenizer."""
        vocabulary = self.prepare.get("train_vocab_size") or BERT_VOCABULARY
        return self.recipe(entrant, 0, Path("corpus"), Path("run")).model_config(vocabulary, length)

    @property
    def length(self) -> int:
        """Tokens of a row of the corpus."""
        return self.prepare.get("length", PrepareArguments.length)
