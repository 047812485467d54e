"""What a cell from pre-training to robustness is told: `run_whole_cell.py` runs it in a process of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sharedqkv.robustness.domains import DOMAINS
from sharedqkv.robustness.grid import Plan as RobustPlan

CONSOLE = "sharedqkv_console"
"""Module whose `main` takes the arguments of a command."""
FINETUNED = "finetune"
"""Folder of the fine-tuning run, below that of the pre-training run."""
SECONDS = "stages.json"
"""What each stage took."""
GIVES_WAY = {"CUDA_MPS_CLIENT_PRIORITY": "1"}
"""Of pre-training, where NVIDIA's MPS runs: its steps fill the GPU, and each small kernel of a fine-tuning beside it
would wait for a place."""


@dataclass(frozen=True)
class WholeCell:
    output: str
    """folder of the pre-training run, whose recipe lies in it as recipe.yaml"""
    tasks: dict[str, Any]
    """task → its recipe"""
    seeds: tuple[int, ...]
    """of fine-tuning"""
    side_by_side: int
    """so many commands of fine-tuning and robustness at once"""
    data: str | None = None
    """folder of the tasks; none: the hub"""
    robust: dict[str, Any] = field(default_factory=dict)
    """task → arguments of `sharedqkv robust`; none: no such stage"""


def robust_arguments(plan: RobustPlan, task: str) -> tuple[str, ...]:
    domains = [name for name in plan.domains if task in DOMAINS[name].tasks]

    def listed(values: Sequence[Any]) -> str:
        return ",".join(map(str, values)) + ","

    return (
        *("--noise", listed(plan.noises) if plan.noises else "none"),
        *("--severity", listed(plan.severities).rstrip(",")),
        *("--seeds", listed(plan.seeds)),
        *("--domains", listed(domains) if domains else "none"),
        *(("--examples", str(plan.limit)) if plan.limit else ()),
    )


def plain(recipe: Any) -> dict[str, Any]:
    """A recipe's fields as YAML has them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in recipe.to_dict().items()}


def last_words(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-1500:]
