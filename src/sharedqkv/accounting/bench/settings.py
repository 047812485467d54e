"""What is the same for everyone in a benchmark."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["train", "forward"]
KINDS: tuple[Kind, ...] = ("train", "forward")
PEERS = ("hf_bert", "modernbert")


@dataclass(frozen=True)
class Settings:
    size: str = "base"
    """model size: tiny, mini, small, medium, base or large"""
    length: int = 128
    """tokens a row; all rows are full"""
    rows: int = 32
    """rows a step"""
    layers: int | None = None
    """layers of every entrant that names none (default: those of the size)"""
    positions: Literal["absolute", "rotary"] = "absolute"
    """learned positions, or rotary ones; peers have their own"""
    norm_placement: Literal["post", "pre"] = "post"
    """of our models: as in BERT, or before each block"""
    dropout: float = 0.0
    """of hidden states and attention weights"""
    bf16: bool = False
    """autocast to bfloat16 in training, weights in bfloat16 in the forward pass"""
    compile: bool = False
    """torch.compile every model, also the peers"""
    rounds: int = 10
    """in each of which every entrant has its turn"""
    steps: int = 10
    """steps a turn"""
    warmup: int = 5
    """steps of each entrant before the first round"""
    seed: int = 0
    """of weights and tokens"""

    def __post_init__(self) -> None:
        for name in ("length", "rows", "rounds", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} {getattr(self, name)}: expected at least 1")
        for name in ("warmup", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"--{name} {getattr(self, name)}: expected 0 or more")
        if self.layers is not None and self.layers < 1:
            raise ValueError(f"--layers {self.layers}: expected at least 1")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"--dropout {self.dropout:g}: expected a number from 0 to below 1")

    @property
    def tokens(self) -> int:
        return self.rows * self.length
