"""The built-in world: a generated language to pre-train on, and tasks in it. Nothing is downloaded."""

from sharedqkv.study.world.tasks import SPLITS, TASKS
from sharedqkv.study.world.world import World
from sharedqkv.study.world.writer import write_world

__all__ = ["SPLITS", "TASKS", "World", "write_world"]
