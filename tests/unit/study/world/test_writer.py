"""Files that the other commands read."""

import json

import pytest

from sharedqkv.data.prepare import PrepareArguments, prepare
from sharedqkv.study.world import SPLITS, TASKS, World, write_world

ROWS = {"train": 30, "validation": 20, "out_of_domain": 10}


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_all_files_are_there(tmp_path):
    world = World(3)
    write_world(tmp_path, world, 40, ROWS)
    assert [row["text"] for row in lines(tmp_path / "corpus" / "train.jsonl")] == list(world.documents(40))
    assert [row["text"] for row in lines(tmp_path / "corpus" / "validation.jsonl")] == list(world.documents(2, 40))
    for task in TASKS:
        for split in SPLITS:
            assert lines(tmp_path / "tasks" / task / f"{split}.jsonl") == world.task(task, split, ROWS[split])


def test_the_corpus_can_be_prepared_with_a_token_a_word(tmp_path):
    write_world(tmp_path, World(), 400, {})
    manifest = prepare(
        PrepareArguments(
            output=str(tmp_path / "prepared"),
            source=(str(tmp_path / "corpus" / "train.jsonl"),),
            validation_source=(str(tmp_path / "corpus" / "validation.jsonl"),),
            train_vocab_size=512,
            length=32,
            processes=1,
        )
    )
    stories = " ".join(World().documents(420))
    words = len(stories.split()) + stories.count(".") + stories.count("?")
    tokens = sum(part.tokens + part.dropped_tokens for part in (manifest.train, manifest.validation))
    assert tokens == words


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match="no split test; tasks of the world have train"):
        write_world(tmp_path, World(), 10, {"test": 5})
    with pytest.raises(ValueError, match="documents must be at least 1, not 0"):
        write_world(tmp_path, World(), 0, {})
