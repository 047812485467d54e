"""What a cell takes: of a device that several share, and at least from its start to its end."""

from dataclasses import dataclass

from sharedqkv.study.sittings.plan import Cell, Plan
from sharedqkv.study.sittings.records import Records

START_S = 45.0
"""First guess: what a cell takes besides its steps (imports, compilation, evaluation, saving), on one H200."""
TRAINING_FLOPS_PER_S = 300e12
"""First guess: what `medium` reaches there."""
TASKS_S = 100.0
"""First guess: five small tasks with five seeds, by CUDA graphs, noise and domains, there."""


@dataclass(frozen=True)
class Cost:
    device_s: float
    """Of the device, if cells beside it keep it busy while this one starts; alone on it, all that it takes."""
    shortest_s: float
    """However few are beside it."""


def expected_cost(records: Records, cell: Cell, told_s: float | None = None) -> Cost:
    """As its like took, or a guess; `told_s` is what a whole run takes of the device, where that is known better."""
    if told_s is not None and cell.stage != "search":
        return Cost(told_s, START_S + told_s)
    device_s, shortest_s = records.device_s(cell), records.shortest_s(cell)
    if device_s is None or shortest_s is None:
        guess = guessed_s(records.plan, cell.stage)
        return Cost(guess, START_S + guess)
    return Cost(device_s, shortest_s)


def guessed_s(plan: Plan, stage: str) -> float:
    tokens = plan.search.max_tokens if stage == "search" else plan.study.pretrain["max_tokens"]
    on_tasks = TASKS_S if plan.tasks and stage == "pretrain" else 0.0
    return tokens * plan.training_flops_per_token / TRAINING_FLOPS_PER_S + on_tasks
