"""All that a condition needs beside the models' answers: noise and tokens before them, records and files after.

A GPU would wait for it, so that there other processes do it, ahead of the GPU and behind it.
"""

import gc
import itertools
import multiprocessing
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from sharedqkv.robustness.conditions import Condition, Examples, chance_of, score, with_noise
from sharedqkv.robustness.tried import TriedModel
from sharedqkv.tasks.cells import settings_sha256, write_json, write_predictions
from sharedqkv.tasks.outputs import InputTable, Outputs
from sharedqkv.tasks.task import Features, Task
from sharedqkv.training.run_folder import now

_FEW = 8
_EXAMPLES_EACH = 100
"""Beyond a few, processes must have so many examples each: it takes a while to start one."""
_LEFT_FREE = 2
"""Processors, for the process that drives the GPU and its threads."""


@dataclass(frozen=True)
class Job:
    """A condition, and the models that have not been tried under it."""

    task: Task
    condition: Condition
    loaded: Examples
    models: list[TriedModel]


@dataclass(frozen=True)
class Prepared:
    """A job's inputs, of the texts at one severity."""

    tables: dict[Any, InputTable]
    """For each kind of inputs."""
    keys: dict[Any, list[str]]
    """A name for each of the inputs."""
    sealed: bytes
    """Examples and features, from which `keep` makes records: nobody else needs them, nor should spend time on them."""


class Desk:
    """Does the work on jobs, which are named by their number."""

    def __init__(self, jobs: Sequence[Job]):
        self.jobs = jobs

    def prepare(self, number: int, severity: int) -> Prepared:
        job = self.jobs[number]
        examples = with_noise(job.loaded.examples, job.condition, severity)
        tables, keys, parts = {}, {}, {}
        for kind, model in {model.inputs_like: model for model in job.models}.items():
            tokenizer, recipe = model.predictor.tokenizer, model.predictor.recipe
            features = job.task.features(examples, tokenizer, recipe)
            tables[kind] = InputTable.of(features.inputs, recipe, tokenizer.pad_token_id)
            keys[kind] = _keys(examples, features)
            parts[kind] = len(features.inputs), Features([], features.truncated, features.details)
        return Prepared(tables, keys, pickle.dumps((examples, parts)))

    def keep(self, number: int, model_number: int, sealed: Sequence[bytes], outputs: Outputs) -> None:
        """Write a model's predictions under all severities, and what they are of."""
        job = self.jobs[number]
        model, condition = job.models[model_number], job.condition
        recipe, of_inputs = model.predictor.recipe, outputs.of_inputs()
        records, metrics, truncated, first = [], {}, {}, 0
        for severity, parcel in zip(condition.severities, sealed, strict=True):
            examples, parts = pickle.loads(parcel)
            count, features = parts[model.inputs_like]
            predicted = job.task.records(examples, features, of_inputs[first : first + count], recipe)
            first += count
            metrics[str(severity)] = score(condition, job.task, predicted)
            truncated[str(severity)] = features.truncated
            records += [{**record, "severity": severity} for record in predicted]
        settings = model.settings(condition, job.loaded)
        file = model.file(condition)
        record = {
            **settings,
            "settings_sha256": settings_sha256(settings),
            "predictions_sha256": write_predictions(file, records),
            "examples": len(job.loaded.examples),
            "counts": job.loaded.counts,
            "truncated": truncated,
            "chance": chance_of(condition, job.task, records[: len(job.loaded.examples)]),
            "metrics": metrics,
            "ended": now(),
        }
        write_json(file.with_suffix(".json"), record)


def _keys(examples: Sequence[Any], features: Features) -> list[str]:
    """Of each input; an example that gives several, like SQuAD's windows, numbers them."""
    if features.details is None:
        return [str(example.id) for example in examples]
    counts = dict.fromkeys(features.details.question, 0)
    keys = []
    for question in features.details.question:
        keys.append(f"{examples[question].id}/{counts[question]}")
        counts[question] += 1
    return keys


class Workers:
    """Processes that work at a desk each; none where there is no GPU to keep busy, or no way to copy this process."""

    def __init__(self, desk: Desk):
        self.desk = desk
        self.count = 0
        if torch.cuda.is_available() and "fork" in multiprocessing.get_all_start_methods():
            examples = max((len(job.loaded.examples) for job in desk.jobs), default=0)
            useful = max(_FEW, examples // _EXAMPLES_EACH)
            self.count = max(0, min(useful, (os.cpu_count() or 1) - _LEFT_FREE))
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        if self.count:
            import sklearn.metrics  # noqa: F401 - both once, not in every process

            for job in self.desk.jobs:
                for model in {model.inputs_like: model for model in job.models}.values():
                    model.predictor.tokenizer  # noqa: B018 - likewise
            gc.freeze()  # what is there stays: to look through it for garbage takes long, and copies it
            copied = multiprocessing.get_context("fork")
            self._pool = ProcessPoolExecutor(self.count, copied, initializer=_take_desk, initargs=(self.desk,))
        return self

    def __exit__(self, *_: Any) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            gc.unfreeze()

    def prepare(self, parts: Iterable[tuple[int, int]]) -> Iterator[Prepared]:
        """In the order of `parts`: numbers of jobs, with severities. Processes begin at once."""
        left = iter(parts)
        begun = deque(self._submit(Desk.prepare, *part) for part in itertools.islice(left, 2 * self.count))
        return self._in_order(begun, left)

    def _in_order(self, begun: "deque[Future[Prepared]]", left: Iterator[tuple[int, int]]) -> Iterator[Prepared]:
        for part in left:
            begun.append(self._submit(Desk.prepare, *part))
            yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()

    def keep(self, number: int, model_number: int, sealed: Sequence[bytes], outputs: Outputs) -> "Future[None]":
        return self._submit(Desk.keep, number, model_number, sealed, outputs)

    def _submit(self, work: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        if self._pool is not None:
            return self._pool.submit(_at_desk, work, *arguments)
        done: Future[Any] = Future()
        try:
            done.set_result(work(self.desk, *arguments))
        except Exception as error:
            done.set_exception(error)
        return done


_desk: Desk
"""Of this process, where it is one of the workers."""


def _take_desk(desk: Desk) -> None:
    global _desk
    _desk = desk
    os.nice(10)  # the process that drives the GPU goes first
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are parallel enough


def _at_desk(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(_desk, *arguments)
