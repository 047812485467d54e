"""Examples of other domains, from the hub or from files.

On disk a set lies in `domains/<name>/`, in the columns of the first of its tasks and with that task's labels.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sharedqkv.robustness.domains import Domain
from sharedqkv.tasks.glue import GlueExample, GlueTask
from sharedqkv.tasks.registry import get_task
from sharedqkv.tasks.sources import load_rows, rows_from_folders, rows_from_hub
from sharedqkv.tasks.task import Row, Split, Task, check_columns


def load_domain(domain: Domain, task: Task, data: Path | None) -> tuple[list[Any], dict[str, int]]:
    """Examples of the task's own kind with labels in the domain's classes, and counts to disclose.

    `data` is a folder with `domains/`, or None for the hub.
    """
    if task.name not in domain.tasks:
        raise ValueError(f"{domain.name} is for models of {', '.join(domain.tasks)}, not of {task.name}")
    rows, where = _load_rows(domain, domain.split, data)
    if not isinstance(task, GlueTask):
        return task.examples([_mended(row) for row in rows] if data is None else rows, where), {}
    examples, counts = _glue_examples(domain, task, rows, where, data)
    if domain.edited and data is None:
        examples = [replace(example, id=f"{example.id}-edited") for example in examples]
    elif domain.edited:
        originals, _ = _glue_examples(domain, task, *_load_rows(domain, "original", data), data)
        examples = _paired(originals, examples, where)
    if domain.foreign_to:
        known = _sentences(task.examples(*load_rows(data, domain.foreign_to)))
        foreign = [example for example in examples if known.isdisjoint(_sentences([example]))]
        place = f"{domain.foreign_to.config}'s {domain.foreign_to.name}"
        counts[f"left out: sentence in {place}"] = len(examples) - len(foreign)
        examples = foreign
    return examples, counts


def _load_rows(domain: Domain, split: str, data: Path | None) -> tuple[list[Row], str]:
    if domain.part_of:
        return load_rows(data, domain.part_of)
    hub = domain.hub
    if data is None:
        if hub is None:
            raise OSError(
                f"{domain.name}: the hub has no copy that can be read; give a folder with "
                f"domains/{domain.name}/{split}-*.parquet or {split}.jsonl as --data"
            )
        return rows_from_hub(hub.repository, hub.config, hub.split, hub.exported)
    folders = [data / "domains" / domain.name, data / domain.name]
    squad_json = [f"{split}.json"] if "squad" in domain.tasks else []
    try:
        return rows_from_folders(data, folders, Split(domain.name, split), squad_json)
    except FileNotFoundError as error:
        if hub is None:
            raise
        raise FileNotFoundError(f"{error}. Without --data it comes from the hub: {hub.repository}") from None


def _glue_examples(
    domain: Domain, task: GlueTask, rows: Sequence[Row], where: str, data: Path | None
) -> tuple[list[GlueExample], dict[str, int]]:
    texts = get_task(domain.tasks[0]).text_columns
    labels = domain.labels or task.labels
    label = "label"
    if data is None and domain.hub:  # the hub's own names
        texts, labels, label = domain.hub.texts or texts, domain.hub.labels or labels, domain.hub.label
    check_columns(rows, (*texts, label), where)
    numbered = [{**row, "label": row[label], "idx": number} for number, row in enumerate(rows)]
    labelled = [row for row in numbered if row["label"] != -1]
    examples = replace(task, name=domain.name, text_columns=texts, labels=labels).examples(labelled, where)
    left_out = len(rows) - len(labelled)
    return examples, {"left out: no label": left_out} if left_out else {}


def _mended(question: Row) -> Row:
    """The hub's copy of the adversarial sets strips contexts but keeps where answers stood before."""
    context, answers = question["context"], question["answers"]
    starts = [
        start if context.startswith(text, start) else context.rfind(text, 0, start + len(text))
        for text, start in zip(answers["text"], answers["answer_start"], strict=True)
    ]
    return {**question, "answers": {"text": answers["text"], "answer_start": starts}}


def _sentences(examples: Sequence[GlueExample]) -> set[str]:
    """Their words only: STS-B ends its sentences with a full stop, SICK does not."""
    return {" ".join(re.findall(r"\w+", text.casefold())) for example in examples for text in example.texts}


def _paired(originals: Sequence[GlueExample], edited: Sequence[GlueExample], where: str) -> list[GlueExample]:
    """`7` for an original and `7-edited` for its edited text, which shares most of its words; files may be unsorted."""
    partners = _closest([example.texts[0] for example in originals], [example.texts[0] for example in edited])
    if sorted(partners) != list(range(len(edited))):
        raise ValueError(
            f"{where}: {len(edited)} edited texts for {len(originals)} originals, and no telling which belongs to "
            "which; expected for each original one edited text that shares most of its words"
        )
    versions = [
        replace(edited[partner], id=f"{example.id}-edited")
        for example, partner in zip(originals, partners, strict=True)
    ]
    return [*(replace(example, id=str(example.id)) for example in originals), *versions]


def _closest(texts: Sequence[str], candidates: Sequence[str]) -> list[int]:
    """For each text the candidate with the largest share of common words (Jaccard)."""
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(binary=True).fit([*texts, *candidates])
    words, candidate_words = counter.transform(texts), counter.transform(candidates)
    common = (words @ candidate_words.T).toarray()
    either = np.asarray(words.sum(axis=1)) + np.asarray(candidate_words.sum(axis=1)).T - common
    return (common / np.maximum(either, 1)).argmax(axis=1).tolist()
