"""How to fine-tune: the settings, their defaults for each task, and where every default comes from."""

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sharedqkv import schema


@dataclass(frozen=True)
class FinetuneRecipe:
    learning_rate: float = 1e-5
    """peak learning rate; it falls linearly to zero after the warm-up"""
    epochs: float = 5.0
    """passes over the training set"""
    batch_size: int = 16
    """examples (SQuAD: windows) of one step"""
    warmup: float = 0.1
    """share of the steps over which the rate rises"""
    max_length: int = 128
    """tokens of an input; longer texts are cut (SQuAD: read in windows) and counted"""
    weight_decay: float = 0.01
    """not on biases, norms and diagonals"""
    betas: tuple[float, float] = (0.9, 0.999)
    """of Adam"""
    eps: float = 1e-6
    """of Adam"""
    max_grad_norm: float = 1.0
    """gradients are clipped to this norm; 0 does not clip"""
    dropout: float | None = None
    """of hidden states and attention weights; default: what the model was pre-trained with"""
    label_noise: float = 0.0
    """share of the training examples that get a wrong label, to measure what that does"""

    stride: int = 128
    """SQuAD: tokens by which the windows of a long paragraph overlap"""
    max_question_length: int = 64
    """SQuAD: tokens of a question; longer ones are cut and counted"""
    max_answer_length: int = 30
    """SQuAD: tokens of an answer"""
    n_best: int = 20
    """SQuAD: so many of the likeliest starts and ends are combined"""
    null_threshold: float = 0.0
    """SQuAD 2.0: "no answer" where its score exceeds the best answer's by more than this"""

    search: dict[str, Any] = field(default_factory=dict)
    """values to try, like {learning_rate: [1e-5, 3e-5]}: every combination is trained with the first seed on nine
    tenths of train and scored on the last tenth; the best is used for all seeds"""

    eval_batch_size: int = 128
    """inputs at once when predicting"""
    bf16: bool = False
    """autocast to bfloat16"""
    tf32: bool = False
    """products of float32 numbers are rounded to TF32 on GPUs that have it: about as fast as bf16, weights and sums
    stay float32"""
    compile: bool = False
    """torch.compile the model for training; pays on large sets only"""
    cuda_graphs: bool = False
    """on a GPU, record the training pass for each shape of batch and replay it: small models no longer wait for
    Python"""
    seeds_at_once: int = 1
    """train so many seeds of a task as one model with a further dimension: small models alone leave a GPU idle"""
    attn_implementation: str = "sdpa"
    """attention backend"""

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)!r}")
        for name in ("warmup", "dropout", "label_noise"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{name} must be in [0, 1), not {value!r}")
        for name, values in self.search.items():
            if name not in SEARCHABLE:
                raise ValueError(f"search: {name!r} cannot be searched; possible: {', '.join(SEARCHABLE)}")
            if not isinstance(values, list) or not values:
                raise ValueError(f"search: {name} must be a list of values to try, not {values!r}")
        if self.cuda_graphs:
            self._check_graphs()
        if self.seeds_at_once > 1:
            self._check_together()
        self.candidates()

    def _check_graphs(self) -> None:
        if self.compile:
            raise ValueError("cuda_graphs and compile exclude each other: switch one of them off")
        if self.attn_implementation not in _GRAPHED_BACKENDS:
            raise ValueError(
                f"cuda_graphs needs attn_implementation {' or '.join(_GRAPHED_BACKENDS)}, not "
                f"{self.attn_implementation!r}, which copies from or to the CPU in every pass"
            )

    def _check_together(self) -> None:
        if self.compile:
            raise ValueError(
                "seeds_at_once and compile exclude each other: set seeds_at_once to 1, or compile to false"
            )
        if self.attn_implementation != "sdpa":
            raise ValueError(
                f"seeds_at_once needs attn_implementation sdpa, not {self.attn_implementation!r}: the others do not "
                "know a further dimension"
            )

    def candidates(self) -> list["FinetuneRecipe"]:
        """One recipe for each combination of the values to try."""
        if not self.search:
            return [self]
        plain = {**self.to_dict(), "search": {}}
        return [
            schema.build(FinetuneRecipe, {**plain, **dict(zip(self.search, values, strict=True))}, "search")
            for values in itertools.product(*self.search.values())
        ]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


SEARCHABLE = ("learning_rate", "epochs", "batch_size", "warmup", "weight_decay", "dropout")
_POSITIVE = (
    "learning_rate", "epochs", "batch_size", "max_length", "eps", "stride", "max_question_length", "max_answer_length",
    "n_best", "eval_batch_size", "seeds_at_once",
)  # fmt: skip
_GRAPHED_BACKENDS = ("sdpa", "fused")

_SQUAD = {"learning_rate": 3e-5, "epochs": 2.0, "max_length": 384}
TASK_DEFAULTS: dict[str, dict[str, Any]] = {
    "squad": {**_SQUAD, "batch_size": 32},
    "squad_v2": {**_SQUAD, "batch_size": 48},
    "span_qa": {"stride": 16, "max_question_length": 32},
}
"""Where a task differs from the defaults of the fields, which are GLUE's."""

_COURTOIS = "Courtois et al. 2024 (5 epochs, 1e-5, batch 16, warm-up 10 %, length 128)"
_DEVLIN = "Devlin et al. 2019, appendix A.2 and released code"
_RUN_SQUAD = "the command and defaults of run_squad.py released with Devlin et al. 2019"
SOURCES = {
    "learning_rate": {"glue": _COURTOIS, "squad": f"{_RUN_SQUAD}; their paper reports 5e-5"},
    "epochs": {"glue": _COURTOIS, "squad": f"{_RUN_SQUAD}; their paper reports 3 for v1.1 and 2 for v2.0"},
    "batch_size": {"glue": _COURTOIS, "squad": "Devlin et al. 2019, sections 4.2 (v1.1: 32) and 4.3 (v2.0: 48)"},
    "warmup": {"glue": _COURTOIS, "squad": _RUN_SQUAD},
    "max_length": {"glue": _COURTOIS, "squad": _RUN_SQUAD},
    "weight_decay": {"glue": _DEVLIN, "squad": _DEVLIN},
    "betas": {"glue": _DEVLIN, "squad": _DEVLIN},
    "eps": {"glue": _DEVLIN, "squad": _DEVLIN},
    "max_grad_norm": {"glue": _DEVLIN, "squad": _DEVLIN},
    "label_noise": {"glue": "none, as everywhere"},
    "dropout": {"glue": "the pre-trained model's own", "squad": "the pre-trained model's own"},
    "stride": {"squad": _RUN_SQUAD},
    "max_question_length": {"squad": _RUN_SQUAD},
    "max_answer_length": {"squad": _RUN_SQUAD},
    "n_best": {"squad": _RUN_SQUAD},
    "null_threshold": {"squad": _RUN_SQUAD},
}
"""Hyper-parameter → kind of task → where its default comes from. The paper on shared weights names none of them."""


def load_recipes(tasks: list[str], path: Path | None, overrides: Mapping[str, Any]) -> dict[str, FinetuneRecipe]:
    """The recipe of each task: its defaults, replaced by the file's values, replaced by the command line's."""
    given: dict[str, Any] = {}
    where = "command line"
    if path is not None:
        if not path.is_file():
            raise FileNotFoundError(f"no recipe {path}: give the path of a YAML file with fields of a recipe")
        schema.load_yaml(FinetuneRecipe, path)  # its errors name the line
        given, where = yaml.safe_load(path.read_text(encoding="utf-8")), str(path)
    return load_recipes_from(tasks, {**given, **overrides}, where)


def load_recipes_from(
    tasks: list[str], values: Mapping[str, Any], where: str, lines: Mapping[str, int] | None = None
) -> dict[str, FinetuneRecipe]:
    """The recipe of each task: its defaults, replaced by these values; `where` and lines are for errors."""
    recipes = {
        task: schema.build(FinetuneRecipe, {**TASK_DEFAULTS.get(task, {}), **values}, where, lines) for task in tasks
    }
    for task in recipes:
        if task in TASK_DEFAULTS:
            _check_windows(task, recipes[task])
    return recipes


def _check_windows(task: str, recipe: FinetuneRecipe) -> None:
    room = recipe.max_length - recipe.max_question_length - 3  # [CLS] and two [SEP]
    if room <= recipe.stride:
        raise ValueError(
            f"{task}: max_length {recipe.max_length} leaves {room} tokens for the paragraph beside a question of "
            f"{recipe.max_question_length}, and windows overlap by stride {recipe.stride}: lower stride or "
            "max_question_length, or raise max_length"
        )
