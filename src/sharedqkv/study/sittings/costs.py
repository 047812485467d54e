"""What a cell takes of a device that several share."""

from sharedqkv.study.sittings.plan import Cell, Plan
from sharedqkv.study.sittings.records import Records

START_S = 75.0
"""What a cell takes before its first step (imports, compilation), on one H200; the device idles if nobody is beside."""
TRAINING_FLOPS_PER_S = 300e12
"""First guess: what `medium` reaches there."""
TASKS_S = 100.0
"""First guess: five small tasks with five seeds, by CUDA graphs, noise and domains, there."""


def expected_s(records: Records, cell: Cell, told_s: float | None = None) -> float:
    """As its like took, or a guess; the plan or, of a whole run, `told_s` says where that is known better."""
    searched = cell.stage == "search"
    planned_s = records.plan.search_s if searched else records.plan.run_s
    known_s = planned_s if searched or told_s is None else told_s
    if known_s is not None:
        return known_s
    measured = records.device_s(cell)
    return guessed_s(records.plan, cell.stage) if measured is None else measured


def guessed_s(plan: Plan, stage: str) -> float:
    tokens = plan.search.max_tokens if stage == "search" else plan.study.pretrain["max_tokens"]
    on_tasks = TASKS_S if plan.tasks and stage == "pretrain" else 0.0
    return START_S + tokens * plan.training_flops_per_token / TRAINING_FLOPS_PER_S + on_tasks
