"""The tasks of the built-in world, in the image of GLUE's and SQuAD. `sharedqkv.study.world` makes their rows."""

from sharedqkv.tasks.glue import GlueTask
from sharedqkv.tasks.metrics import Metric, accuracy, spearman
from sharedqkv.tasks.squad import SquadTask
from sharedqkv.tasks.task import Split, Task


def _task(name: str, columns: tuple[str, ...], labels: tuple[str, ...], metric: Metric = accuracy) -> GlueTask:
    return GlueTask(name, columns, labels, (metric,), (Split(name, "validation", scored_as=name),))


_PAIR = ("sentence1", "sentence2")
BUILT_IN: dict[str, Task] = {
    "acceptability": _task("acceptability", ("sentence",), ("unacceptable", "acceptable")),
    "sentiment": _task("sentiment", ("sentence",), ("negative", "positive")),
    "paraphrase": _task("paraphrase", _PAIR, ("not_equivalent", "equivalent")),
    "similarity": _task("similarity", _PAIR, (), spearman),
    "entailment": _task("entailment", _PAIR, ("entailment", "not_entailment")),
    "span_qa": SquadTask("span_qa", unanswerable=False),
}
