"""What is run, in which order, with which settings."""

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sharedqkv import schema
from sharedqkv.accounting import forward_flops_per_token
from sharedqkv.evidence.report.collect import Entrant
from sharedqkv.study.plan import Study, load_study
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.training.recipe import PretrainRecipe


@dataclass(frozen=True)
class PlanFile:
    study: str
    """a study's name, or its file beside the plan"""
    search: dict[str, Any]
    """{learning_rates: ..., max_tokens: ..., position: ...}: each variant is tried with each; one alone is taken"""
    order: tuple[dict[str, Any], ...]
    """[{variants: ..., positions: ..., seeds: ...}, ...], the most important first; some may be checks"""
    tasks: dict[str, Any] = field(default_factory=dict)
    """{sst2: {epochs: 2}, ...}: fields of a task's recipe that are not those of the study"""
    records: str | None = None
    """folder of what was run, its path from the plan; the command may name another"""
    run_s: float | None = None
    """what a whole run takes of the device, in seconds, where that is known better than from those before"""
    search_s: float | None = None
    """the same of a run of the search"""

    def __post_init__(self) -> None:
        for name in ("run_s", "search_s"):
            seconds = getattr(self, name)
            if seconds is not None and seconds <= 0:
                raise ValueError(f"{name} must be positive, not {seconds:g}")


@dataclass(frozen=True)
class Search:
    learning_rates: tuple[float, ...]
    max_tokens: int
    """How much of the whole run each rate is tried for."""
    position: str
    """Positions of the models it is done with; the rate found is the variant's with any."""

    def __post_init__(self) -> None:
        if not self.learning_rates or min(self.learning_rates) <= 0:
            raise ValueError(
                f"learning_rates must be positive, one to take or several to try, not {list(self.learning_rates)}"
            )

    @property
    def only_rate(self) -> float | None:
        """With one rate there is nothing to search."""
        return self.learning_rates[0] if len(self.learning_rates) == 1 else None


@dataclass(frozen=True)
class Group:
    """Whole runs. With `learning_rates` or `max_tokens` they are checks, which deviate from the study in that."""

    variants: tuple[str, ...]
    positions: tuple[str, ...]
    seeds: tuple[int, ...]
    learning_rates: tuple[float, ...] = ()
    """Whole runs with those of these that the search did not take: was the beginning of a run enough to choose?"""
    max_tokens: tuple[int, ...] = ()
    """Whole runs with these budgets, for the loss that a model reaches in another one's time."""

    def __post_init__(self) -> None:
        if self.learning_rates and self.max_tokens:
            raise ValueError("learning_rates and max_tokens need a group each: a run deviates in one thing")
        if any(tokens <= 0 for tokens in self.max_tokens):
            raise ValueError(f"max_tokens must be positive, not {min(self.max_tokens)}")


@dataclass(frozen=True)
class Cell:
    variant: str
    position: str
    seed: int = 0
    tried_rate: float | None = None
    """Of a cell of the search; the others take the rate that was chosen."""
    checked_rate: float | None = None
    """Of a check: a whole run with this rate."""
    checked_tokens: int | None = None
    """Of a check: a whole run with this budget."""

    @property
    def stage(self) -> str:
        if self.tried_rate is not None:
            return "search"
        return "pretrain" if self.checked_rate is None and self.checked_tokens is None else "checks"

    @property
    def label(self) -> str:
        """What tells it from the other cells of its stage and entrant."""
        if self.tried_rate is not None:
            return f"{self.tried_rate:g}"
        if self.checked_rate is not None:
            return f"{self.seed}-rate-{self.checked_rate:g}"
        return f"{self.seed}" if self.checked_tokens is None else f"{self.seed}-tokens-{self.checked_tokens}"


@dataclass(frozen=True)
class Plan:
    study: Study
    search: Search
    cells: list[Cell]
    """In order; a variant's search comes before its first run."""
    tasks: dict[str, FinetuneRecipe]
    """That a pre-trained model is tried on in the same cell, since it is let go afterwards; perhaps none."""
    records: Path | None = None
    run_s: float | None = None
    search_s: float | None = None

    def entrant(self, variant: str, position: str) -> Entrant:
        return _entrants(self.study)[variant, position]

    def name(self, cell: Cell, stage: str | None = None) -> str:
        """Its place below the records' folder, as a study has it."""
        slug = self.entrant(cell.variant, cell.position).slug
        return f"{stage or cell.stage}/{slug}/{cell.label}"

    @cached_property
    def training_flops_per_token(self) -> float:
        """Of the first entrant; the others need about as many."""
        length = self.study.length
        return 3 * forward_flops_per_token(self.study.model_config(self.study.entrants[0], length), length)

    def goes_on_to_tasks(self, cell: Cell) -> bool:
        return bool(self.tasks) and cell.stage == "pretrain"

    def recipe(self, cell: Cell, learning_rate: float, corpus: Path, output: Path) -> PretrainRecipe:
        """A search run is the beginning of the whole run with that rate: same rows, masks and warm-up.

        A check is a whole run: with another budget its warm-up and decay are the same shares of it.
        """
        whole = self.study.recipe(self.entrant(cell.variant, cell.position), cell.seed, corpus, output)
        if cell.tried_rate is None:
            max_tokens = cell.checked_tokens or whole.max_tokens
            return dataclasses.replace(whole, learning_rate=learning_rate, max_tokens=max_tokens)
        assert whole.max_tokens is not None  # checked in load_plan
        return dataclasses.replace(
            whole,
            learning_rate=learning_rate,
            schedule="constant",
            warmup=whole.warmup * whole.max_tokens / self.search.max_tokens,
            max_tokens=self.search.max_tokens,
        )


def load_plan(path: Path) -> Plan:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such plan; expected a YAML file")
    file = schema.load_yaml(PlanFile, path)
    study = load_study(str(path.parent / file.study) if file.study.endswith((".yaml", ".yml")) else file.study)
    if not study.pretrain.get("max_tokens"):
        raise ValueError(f"{path}: {file.study} must give its budget as max_tokens, of which the search is a part")
    search = schema.build(Search, file.search, f"{path}: search")
    groups = [schema.build(Group, group, f"{path}: order") for group in file.order]
    cells = list(dict.fromkeys(cell for group in groups for cell in _cells(group, search)))
    known = _entrants(study)
    for cell in cells:
        if (cell.variant, cell.position) not in known:
            names = ", ".join(f"{variant} ({position})" for variant, position in known)
            raise ValueError(f"{path}: {cell.variant} ({cell.position}) is not in the study, which has {names}")
    records = Path(os.path.normpath(path.parent / file.records)) if file.records else None
    plan = Plan(study, search, cells, _task_recipes(study, file.tasks, path), records, file.run_s, file.search_s)
    for cell in cells:
        whole = Cell(cell.variant, cell.position, cell.seed)
        if cell.checked_rate not in (None, *search.learning_rates):
            raise ValueError(
                f"{path}: order: learning_rates: {cell.checked_rate} is not one of the search's "
                f"({', '.join(f'{rate:g}' for rate in search.learning_rates)}): add it there, or drop it here"
            )
        if (cell.checked_tokens or 0) > study.pretrain["max_tokens"]:
            raise ValueError(
                f"{path}: order: max_tokens {cell.checked_tokens} is over the study's: its time is not known"
            )
        if cell.stage == "checks" and whole not in cells:
            raise ValueError(f"{path}: {plan.name(cell)} is checked against {plan.name(whole)}: add that to the order")
    return plan


def _task_recipes(study: Study, own_fields: dict[str, Any], path: Path) -> dict[str, FinetuneRecipe]:
    unknown = [task for task in own_fields if task not in study.tasks]
    if unknown:
        raise ValueError(
            f"{path}: tasks: {unknown[0]} is not in the study, which has {', '.join(study.tasks) or 'none'}"
        )
    return {
        task: schema.build(FinetuneRecipe, {**recipe.to_dict(), **own_fields.get(task, {})}, f"{path}: tasks: {task}")
        for task, recipe in study.tasks.items()
    }


def _entrants(study: Study) -> dict[tuple[str, str], Entrant]:
    return {(entrant.spec, entrant.position_embedding_type): entrant for entrant in study.entrants}


def _cells(group: Group, search: Search) -> Iterator[Cell]:
    """Variants change fastest: the same program compiled by two cells at once would be compiled twice."""
    for rate in search.learning_rates if search.only_rate is None else ():
        for variant in group.variants:
            yield Cell(variant, search.position, tried_rate=rate)
    wholes = [
        Cell(variant, position, seed)
        for seed in group.seeds
        for position in group.positions
        for variant in group.variants
    ]
    if group.learning_rates:
        yield from (dataclasses.replace(cell, checked_rate=r) for r in group.learning_rates for cell in wholes)
    elif group.max_tokens:
        yield from (dataclasses.replace(cell, checked_tokens=n) for n in group.max_tokens for cell in wholes)
    else:
        yield from wholes
