"""Tasks are solvable from their text, not by counting words, and their splits are apart."""

import re
from collections import Counter
from functools import cache

import pytest
from unit.study.world import bag_of_words, oracle
from unit.study.world.test_lexicon import all_forms

from sharedqkv.study.world import SPLITS, TASKS, World, tasks
from sharedqkv.study.world.lexicon import WORDS

COUNTS = {"train": 2000, "validation": 600, "out_of_domain": 600}
CLASSIFIED = ("acceptability", "sentiment", "paraphrase", "entailment")


@cache
def rows(task: str, split: str) -> list[dict]:
    return World().task(task, split, COUNTS[split])


def texts(row: dict) -> tuple[str, ...]:
    return tuple(value for name, value in row.items() if isinstance(value, str) and name != "id")


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("task", [task for task in TASKS if task != "span_qa"])
def test_an_oracle_knows_every_label(task, split):
    wrong = [row for row in rows(task, split) if getattr(oracle, task)(row) != row["label"]]
    assert wrong == []


@pytest.mark.parametrize("split", SPLITS)
def test_an_oracle_knows_every_answer(split):
    for row in rows("span_qa", split):
        answer, start = oracle.span_qa(row)
        assert (row["answers"]["text"][0], row["answers"]["answer_start"][0]) == (answer, start)


def test_an_answer_may_be_short_but_stands_where_it_says():
    for row in rows("span_qa", "out_of_domain"):
        full, short = row["answers"]["text"]
        assert len(short.split()) == 2
        for start in row["answers"]["answer_start"]:
            assert row["context"][start:].startswith(full)
            assert full.startswith(short)


@pytest.mark.parametrize("task", CLASSIFIED)
def test_counting_words_does_not_tell_the_class(task):
    """Chance is 0.5; seen: 0.50 to 0.57."""
    assert bag_of_words.score(rows(task, "train"), rows(task, "validation")) < 0.65


def test_counting_words_does_not_grade_similarity():
    """Seen: 0.51. It is `not`, in one sentence and not in the other, that tells."""
    assert bag_of_words.score(rows("similarity", "train"), rows("similarity", "validation")) < 0.6


def test_counting_words_does_not_find_the_answer():
    """Chance is a third; seen: 0.53, since which sentence is asked about can be counted."""
    assert bag_of_words.span_score(rows("span_qa", "train"), rows("span_qa", "validation")) < 0.65


def test_the_bag_of_words_can_learn():
    """The baseline is no straw man: where a word decides, it finds it."""
    easy = [{**row, "sentence": f"{row['sentence']} {row['label']}"} for row in rows("acceptability", "train")]
    assert bag_of_words.score(easy[:1000], easy[1000:]) > 0.99


@pytest.mark.parametrize("task", TASKS)
def test_splits_share_no_row(task):
    parts = [{texts(row) for row in rows(task, split)} for split in SPLITS]
    assert [len(part) for part in parts] == list(COUNTS.values())
    assert len(set.union(*parts)) == sum(COUNTS.values())


@pytest.mark.parametrize("task", TASKS)
def test_out_of_domain_rows_have_new_words_and_are_longer(task):
    new, familiar = set(all_forms(WORDS.new())), set(all_forms(WORDS.familiar()))
    for split in SPLITS:
        for row in rows(task, split):
            words = set(re.findall(r"\w+", " ".join(texts(row)).lower()))
            used, avoided = (new, familiar) if split == "out_of_domain" else (familiar, new)
            assert words & used
            assert not words & avoided
    assert mean_length(task, "out_of_domain") > 1.3 * mean_length(task, "train")


def mean_length(task: str, split: str) -> float:
    return sum(len(" ".join(texts(row)).split()) for row in rows(task, split)) / COUNTS[split]


@pytest.mark.parametrize("task", [task for task in TASKS if task != "span_qa"])
def test_labels_are_balanced(task):
    counts = Counter(row["label"] for row in rows(task, "validation"))
    assert len(counts) == (6 if task == "similarity" else 2)
    assert max(counts.values()) == min(counts.values())


def test_rows_have_the_columns_of_glue_and_squad():
    columns = {task: list(rows(task, "train")[0]) for task in TASKS}
    pair = ["idx", "sentence1", "sentence2", "label"]
    assert columns.pop("span_qa") == ["id", "context", "question", "answers"]
    for task in ("acceptability", "sentiment"):
        assert columns.pop(task) == ["idx", "sentence", "label"]
    assert all(found == pair for found in columns.values())


def test_a_world_that_has_no_more_rows_says_so(monkeypatch):
    monkeypatch.setattr(tasks, "_MOST_MISSES", 50)
    monkeypatch.setitem(tasks._TASKS, "sentiment", tasks._Task(lambda speaker, label: {"sentence": "Yes.", "label": 1}))
    with pytest.raises(ValueError, match="sentiment, out_of_domain: the world has but some 1 different rows"):
        World().task("sentiment", "out_of_domain", 2)
