"""What can be scored without reading: the level from which a loss of quality is measured."""

from collections.abc import Callable, Sequence

from sharedqkv.tasks.task import Record


def chance(score: Callable[[Sequence[Record]], float], records: Sequence[Record], classes: int) -> float:
    """The best score of any constant answer.

    `classes` are the task's; 0 where answers are numbers or texts. The constant number scores 0 in every correlation,
    the constant text is "no answer".
    """
    if not records:
        raise ValueError("no records: chance is that of the labels of a split, and the split is empty")
    constants = range(classes) if classes else ["" if isinstance(records[0]["label"], list) else 0.0]
    return max(score([{**record, "prediction": constant} for record in records]) for constant in constants)
