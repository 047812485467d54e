"""A recipe: everything that decides about one pre-training run, from YAML and the command line."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from sharedqkv import schema

if TYPE_CHECKING:
    from sharedqkv.models import SharedQKVConfig

SHIPPED = Path(str(files("sharedqkv"))) / "recipes"


@dataclass(frozen=True)
class PretrainRecipe:
    data: str
    """folder that `sharedqkv prepare` made"""
    output: str
    """run folder; an existing one needs --resume"""

    size: str = "base"
    """tiny, mini, small, medium, base or large"""
    attention_variant: str = "standard"
    """how queries, keys and values are made"""
    attention_options: dict[str, Any] = field(default_factory=dict)
    """options of the variant, like {bias: true}"""
    position_embedding_type: Literal["absolute", "rotary"] = "absolute"
    """learned positions, or rotary ones"""
    norm_placement: Literal["post", "pre"] = "post"
    """BERT's post-LN, or pre-LN, which trains in short budgets where post-LN sits on a plateau"""
    dropout: float = 0.1
    """of hidden states and attention weights"""
    model: dict[str, Any] = field(default_factory=dict)
    """other fields of the model's configuration, like {num_hidden_layers: 10}"""
    attn_implementation: str = "sdpa"
    """attention backend"""

    mlm_share: float = 0.15
    """share of the tokens to predict in training; evaluation is always at 15 %"""
    whole_words: bool = False
    """mask whole words"""
    next_sentence: bool = False
    """add BERT's next-sentence loss; needs data of layout pairs"""

    rows_per_step: int = 256
    """rows of one optimizer step, over all devices and accumulation"""
    rows_per_device: int = 32
    """rows a device takes at once"""
    max_steps: int | None = None
    """budget in optimizer steps; give exactly one budget"""
    max_epochs: float | None = None
    """budget in passes over the data"""
    max_tokens: int | None = None
    """budget in tokens, padding included"""
    max_minutes: float | None = None
    """budget in wall-clock minutes of training; the schedule follows the clock, so such a run is not exact on resume"""

    optimizer: Literal["adamw", "stable_adamw"] = "adamw"
    """stable_adamw shrinks its steps where the gradient is suddenly large"""
    learning_rate: float = 1e-4
    """peak learning rate"""
    schedule: Literal["linear", "warmup_stable_decay", "constant"] = "linear"
    """after the warm-up: linear to zero, level and then linear to zero, or level"""
    warmup: float = 0.05
    """share of the budget over which the rate rises"""
    decay: float = 0.1
    """share of the budget over which warmup_stable_decay falls"""
    betas: tuple[float, float] = (0.9, 0.98)
    """of Adam"""
    eps: float = 1e-6
    """of Adam"""
    weight_decay: float = 0.01
    """not on biases, norms and diagonals"""
    max_grad_norm: float = 1.0
    """gradients are clipped to this norm; 0 does not clip"""

    bf16: bool = False
    """autocast to bfloat16"""
    compile: bool = False
    """torch.compile the model"""
    gradient_checkpointing: bool = False
    """trade time for memory"""
    seed: int = 0
    """of initialisation, order, masks and dropout"""
    workers: int = 0
    """processes that load data; the run does not depend on it"""

    logging_steps: int = 10
    """steps between records in metrics.jsonl; divides save_steps and eval_steps"""
    eval_steps: int = 500
    """steps between evaluations on held-out text"""
    eval_rows: int = 2048
    """at most so many held-out rows"""
    save_steps: int = 500
    """steps between checkpoints"""
    keep_checkpoints: int = 2
    """complete checkpoints to keep"""
    report_to: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """trackers to report to as well"""

    def __post_init__(self) -> None:
        budgets = [name for name in BUDGETS if getattr(self, name) is not None]
        if len(budgets) != 1:
            raise ValueError(f"give exactly one of {', '.join(BUDGETS)}; given: {', '.join(budgets) or 'none'}")
        for name in (*budgets, *_AT_LEAST_ONE, "learning_rate", "eps"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)!r}")
        for name in ("warmup", "decay", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), not {getattr(self, name)!r}")
        for name in ("seed", "workers", "weight_decay", "max_grad_norm"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, and is {getattr(self, name)!r}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be in [0, 1), not {list(self.betas)}")
        if not 0 < self.mlm_share < 1:
            raise ValueError(f"mlm_share must be between 0 and 1, not {self.mlm_share!r}")
        if self.warmup + (self.decay if self.schedule == "warmup_stable_decay" else 0) > 1:
            raise ValueError(f"warmup {self.warmup} and decay {self.decay} together are over the whole budget")
        if self.rows_per_step % self.rows_per_device:
            raise ValueError(
                f"rows_per_step {self.rows_per_step} must be a multiple of rows_per_device {self.rows_per_device}"
            )
        for name in ("save_steps", "eval_steps"):
            if getattr(self, name) % self.logging_steps:
                raise ValueError(
                    f"logging_steps {self.logging_steps} must divide {name} {getattr(self, name)}, or records would "
                    "straddle what happens then"
                )
        reserved = sorted(set(self.model) & {*_MODEL_FIELDS, "vocab_size"})
        if reserved:
            raise ValueError(f"model: {', '.join(reserved)} {'has' if len(reserved) == 1 else 'have'} its own place")
        self.model_config(vocab_size=1000, length=8)

    def model_config(self, vocab_size: int, length: int, pad_token_id: int = 0) -> "SharedQKVConfig":
        from sharedqkv.models import SharedQKVConfig  # not for `--help`, which lists the fields

        values = {
            "vocab_size": vocab_size,
            "pad_token_id": pad_token_id,
            "max_position_embeddings": max(512, length),
            "hidden_dropout_prob": self.dropout,
            "attention_probs_dropout_prob": self.dropout,
            **{name: getattr(self, name) for name in _MODEL_FIELDS},
            **self.model,
        }
        return SharedQKVConfig.from_size(self.size, **values)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


BUDGETS = ("max_steps", "max_epochs", "max_tokens", "max_minutes")
_MODEL_FIELDS = ("attention_variant", "attention_options", "position_embedding_type", "norm_placement")
_AT_LEAST_ONE = (
    "rows_per_step", "rows_per_device", "logging_steps", "eval_steps", "eval_rows", "save_steps", "keep_checkpoints",
)  # fmt: skip


def shipped_recipes() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def load_recipe(name: str, overrides: Mapping[str, Any]) -> PretrainRecipe:
    """A recipe by shipped name or path; another budget on the command line replaces the recipe's own."""
    return schema.load_yaml(PretrainRecipe, _find(name), _one_budget(overrides))


def recipe_values(
    name: str | None, values: Mapping[str, Any] | None = None, overrides: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The plain values of a recipe by name, or the given ones, with some replaced."""
    if name is not None:
        schema.load_yaml(PretrainRecipe, _find(name))  # its errors name the line
        values = yaml.safe_load(_find(name).read_text(encoding="utf-8"))
    return {**(values or {}), **_one_budget(overrides or {})}


def _one_budget(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A budget replaces all others."""
    if any(overrides.get(budget) is not None for budget in BUDGETS):
        return {**dict.fromkeys(BUDGETS), **overrides}
    return dict(overrides)


def _find(name: str) -> Path:
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = SHIPPED / f"{name}.yaml"
    if not path.is_file():
        raise FileNotFoundError(
            f"no recipe {name!r}: give the path of a YAML file or one of the shipped {', '.join(shipped_recipes())}"
        )
    return path
