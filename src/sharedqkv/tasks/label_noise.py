"""Wrong labels in training, to see what they do to a model. The seed decides which, so they are the same for all."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sharedqkv.tasks.glue import GlueExample, GlueTask
from sharedqkv.tasks.task import Task


def with_label_noise(task: Task, examples: Sequence[GlueExample], share: float, seed: int) -> list[GlueExample]:
    """A share of the examples with another class, every other one alike; where labels are numbers, with one another's.

    The examples stay in their order.
    """
    if share == 0:
        return list(examples)
    if not isinstance(task, GlueTask):
        raise ValueError(f"{task.name}: label_noise is for classes and numbers, not for answers in a text; set it to 0")
    rng = np.random.default_rng([seed, 0x1ABE1])
    noisy = list(examples)
    chosen = rng.permutation(len(noisy))[: round(share * len(noisy))]
    if task.labels:
        steps = rng.integers(1, len(task.labels), size=len(chosen))
        labels = [
            (int(noisy[index].label or 0) + int(step)) % len(task.labels)
            for index, step in zip(chosen, steps, strict=True)
        ]
    else:
        labels = [noisy[index].label for index in np.roll(chosen, 1)]
    for index, label in zip(chosen, labels, strict=True):
        noisy[index] = replace(noisy[index], label=label)
    return noisy
