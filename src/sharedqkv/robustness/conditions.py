"""What a fine-tuned model is tried under: clean text, a noise with its severities, or another domain."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from sharedqkv.robustness.chance import chance
from sharedqkv.robustness.domain_sources import load_domain
from sharedqkv.robustness.domains import DOMAINS, counted_records, domains_for, score_domain
from sharedqkv.robustness.exclusions import excluded
from sharedqkv.robustness.noises import MODEL_NOISES, NOISES, SEVERITIES
from sharedqkv.robustness.text_noise import TEXT_NOISES, corrupt
from sharedqkv.tasks.glue import GlueTask
from sharedqkv.tasks.sources import load_rows
from sharedqkv.tasks.squad import Question
from sharedqkv.tasks.task import Record, Task

CLEAN = "clean"


@dataclass(frozen=True)
class Condition:
    name: str
    """`clean`, a noise or a domain."""
    seed: int = 0
    """Of the noise."""
    severities: tuple[int, ...] = (0,)

    def __str__(self) -> str:
        return f"{self.name}, noise seed {self.seed}" if self.is_noise else self.name

    @property
    def is_noise(self) -> bool:
        return self.name in NOISES

    @property
    def text_severities(self) -> tuple[int, ...]:
        """One for each text that an example gives: noise in the model leaves it as it is."""
        return (0,) if self.name in MODEL_NOISES else self.severities

    @property
    def is_domain(self) -> bool:
        return self.name in DOMAINS


def parse_noises(text: str) -> list[str]:
    """`keyboard,gaussian`, with `all`, `text`, `model` and `none`."""
    groups = {"all": NOISES, "text": tuple(TEXT_NOISES), "model": tuple(MODEL_NOISES), "none": ()}
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in (*groups, *NOISES)]
    if unknown or not names:
        raise ValueError(
            f"--noise: unknown {', '.join(unknown) or 'nothing'}; known: {', '.join(groups)}, {', '.join(NOISES)}"
        )
    return list(dict.fromkeys(part for name in names for part in groups.get(name, (name,))))


def parse_severities(text: str) -> tuple[int, ...]:
    """`1,3,5`, or `1-5`."""
    try:
        if "-" in text:
            low, high = map(int, text.split("-"))
            severities = tuple(range(low, high + 1))
        else:
            severities = tuple(sorted({int(part) for part in text.split(",") if part.strip()}))
    except ValueError:
        severities = ()
    if not severities or not set(severities) <= set(SEVERITIES):
        raise ValueError(f"--severity {text!r}: expected numbers from 1 to {SEVERITIES[-1]}, like 1,3,5 or 1-5")
    return severities


def conditions_for(
    task: str, noises: Sequence[str], severities: Sequence[int], seeds: Sequence[int], domains: Sequence[str]
) -> tuple[list[Condition], dict[str, str]]:
    """What a task is tried under, clean text first, and what it is not, with the reason."""
    conditions, left_out = [Condition(CLEAN)], {}
    for noise in noises:
        reason = excluded(task, noise) if noise in TEXT_NOISES else None
        if reason is not None:
            left_out[noise] = reason
        else:
            conditions += [Condition(noise, seed, tuple(severities)) for seed in seeds]
    of_task = {domain.name for domain in domains_for(task)}
    return [*conditions, *(Condition(name) for name in domains if name in of_task)], left_out


@dataclass(frozen=True)
class Examples:
    """A condition's examples as they were before any noise, and what must be said about them."""

    examples: list[Any]
    counts: dict[str, int]

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(repr(self.examples).encode("utf-8", "surrogatepass")).hexdigest()


def load_examples(condition: Condition, task: Task, data: Path | None, limit: int | None) -> Examples:
    """`limit` draws so many of the examples, the same ones for every model."""
    if condition.is_domain:
        domain = DOMAINS[condition.name]
        examples, counts = load_domain(domain, task, data)
        if domain.edited:
            return Examples(examples, counts)  # its pairs must stay together
    else:
        examples, counts = task.examples(*load_rows(data, task.validation[0])), {}
    if limit is not None and limit < len(examples):
        kept = np.random.default_rng(0).permutation(len(examples))[:limit]
        counts = {**counts, "left out by --examples": len(examples) - limit}
        examples = [examples[index] for index in sorted(kept)]
    return Examples(examples, counts)


def with_noise(examples: Sequence[Any], condition: Condition, severity: int) -> list[Any]:
    """The examples with noise on their text; as they are where the noise is in the model."""
    if condition.name not in TEXT_NOISES or severity == 0:
        return list(examples)
    noisy = partial(corrupt, noise=condition.name, severity=severity, seed=condition.seed)
    return [_noisy_question(e, noisy) if isinstance(e, Question) else _noisy_texts(e, noisy) for e in examples]


def _noisy_texts(example: Any, noisy: Any) -> Any:
    texts = (noisy(text, key=f"{example.id}/{place}").text for place, text in enumerate(example.texts))
    return replace(example, texts=tuple(texts))


def _noisy_question(example: Question, noisy: Any) -> Question:
    """The answers are what stands where they stood."""
    spans = [(start, start + len(text)) for start, text in zip(example.starts, example.answers, strict=True)]
    context = noisy(example.context, key=f"{example.id}/context", spans=spans)
    return replace(
        example,
        question=noisy(example.question, key=f"{example.id}/question").text,
        context=context.text,
        answers=tuple(context.text[start:end] for start, end in context.spans),
        starts=tuple(start for start, _ in context.spans),
    )


def counted(condition: Condition, task: Task, records: Sequence[Record]) -> Sequence[Record]:
    """The records that the score is made of."""
    return counted_records(DOMAINS[condition.name], task, records) if condition.is_domain else records


def score(condition: Condition, task: Task, records: Sequence[Record]) -> dict[str, float]:
    if condition.is_domain:
        return score_domain(DOMAINS[condition.name], task, records)
    return task.score(task.validation[0], records)


def chance_of(condition: Condition, task: Task, records: Sequence[Record]) -> float:
    classes = len(task.labels) if isinstance(task, GlueTask) else 0
    return chance(lambda constant: score(condition, task, constant)["score"], records, classes)
