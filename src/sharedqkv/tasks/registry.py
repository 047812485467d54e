"""The one list of tasks, by name."""

import difflib

from sharedqkv.plugins import left_out, load_plugins
from sharedqkv.tasks.built_in import BUILT_IN
from sharedqkv.tasks.glue import GLUE
from sharedqkv.tasks.squad import SQUAD, SquadTask
from sharedqkv.tasks.task import Task

ENTRY_POINT_GROUP = "sharedqkv.tasks"

TASKS: dict[str, Task] = {**GLUE, **SQUAD, **BUILT_IN}


def register_task(task: Task) -> Task:
    """Make a task of your own known by its name.

    The commands find it without an import when its package declares an entry point in the group `sharedqkv.tasks`
    that names the module which calls this.
    """
    if not task.name.isidentifier():
        raise ValueError(f"task name {task.name!r} must be a Python identifier: it names folders")
    if TASKS.setdefault(task.name, task) != task:
        raise ValueError(f"there is another task {task.name!r} already")
    return task


def task_names() -> list[str]:
    load_plugins(ENTRY_POINT_GROUP)
    return list(TASKS)


def answers_are_spans(name: str) -> bool:
    """SQuAD and its kin; `name` is a task's, or what one of its splits is scored as."""
    return isinstance(TASKS.get(name), SquadTask)


def get_task(name: str) -> Task:
    if name not in TASKS and name not in task_names():
        close = difflib.get_close_matches(name, TASKS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown task {name!r}.{hint} Known: {', '.join(TASKS)}.{left_out(ENTRY_POINT_GROUP)}")
    return TASKS[name]
