"""Every format gives the same rows; what is missing or broken is named."""

import builtins
import os
from pathlib import Path

import pytest
from finetuning_helpers import (
    make_questions,
    make_rows,
    write_jsonl,
    write_official_tsv,
    write_parquet,
    write_squad_json,
)

from sharedqkv.tasks.glue import AX, GLUE
from sharedqkv.tasks.registry import get_task
from sharedqkv.tasks.sources import load_rows
from sharedqkv.tasks.squad import SQUAD
from sharedqkv.tasks.task import Split


def read(folder: Path, task, split: Split, labelled: bool = True):
    return task.examples(*load_rows(folder, split), labelled)


@pytest.mark.parametrize("task", GLUE.values(), ids=GLUE)
@pytest.mark.parametrize("split", ["train", "validation"])
def test_every_format_gives_the_same_examples(task, split, tmp_path):
    split = task.train if split == "train" else task.validation[-1]
    rows = make_rows(task.name, 6)
    write_parquet(tmp_path / "parquet" / task.name / f"{split.name}-00000-of-00001.parquet", rows)
    write_jsonl(tmp_path / "jsonl" / "glue" / task.name / f"{split.name}.jsonl", rows)
    write_official_tsv(tmp_path / "tsv", task.name, split.name, rows)
    expected = task.examples(rows, "")
    for kind in ("parquet", "jsonl", "tsv"):
        assert read(tmp_path / kind, task, split) == expected, kind


@pytest.mark.parametrize(
    ("task", "split"), [(task, split) for task in GLUE.values() for split in task.test], ids=lambda part: part.name
)
def test_official_test_sets_have_no_labels(task, split, tmp_path):
    rows = make_rows(task.name, 4, labelled=False)
    path = write_official_tsv(tmp_path, split.config, split.name, rows)
    assert "label" not in path.read_text().splitlines()[0]
    examples = read(tmp_path, task, split, labelled=False)
    assert [(example.id, example.label) for example in examples] == [(index, None) for index in range(4)]


def test_the_diagnostic_set_lies_where_glue_puts_it(tmp_path):
    assert write_official_tsv(tmp_path, "ax", "test", make_rows("mnli", 1)).name == "diagnostic.tsv"
    assert load_rows(tmp_path, AX)[0][0]["idx"] == 0


def test_quotes_are_text(tmp_path):
    path = tmp_path / "SST-2" / "train.tsv"
    path.parent.mkdir()
    path.write_text('sentence\tlabel\n"fine film\t1\na "dull" one\t0\n')
    assert [example.texts[0] for example in read(tmp_path, GLUE["sst2"], GLUE["sst2"].train)] == [
        '"fine film',
        'a "dull" one',
    ]


def test_shards_are_read_in_order(tmp_path):
    rows = make_rows("cola", 4)
    write_parquet(tmp_path / "cola" / "train-00001-of-00002.parquet", rows[2:])
    write_parquet(tmp_path / "cola" / "train-00000-of-00002.parquet", rows[:2])
    assert load_rows(tmp_path, GLUE["cola"].train)[0] == rows


@pytest.mark.parametrize("task", SQUAD.values(), ids=SQUAD)
def test_squads_formats_give_the_same_questions(task, tmp_path):
    rows = make_questions(6, unanswerable=task.unanswerable)
    [split] = task.validation
    version = "v2.0" if task.unanswerable else "v1.1"
    inner = "squad_v2" if task.unanswerable else "plain_text"
    write_parquet(tmp_path / "parquet" / task.name / inner / "validation-00000-of-00001.parquet", rows)
    write_jsonl(tmp_path / "jsonl" / task.name / "validation.jsonl", rows)
    write_squad_json(tmp_path / "json" / f"dev-{version}.json", rows)
    expected = task.examples(rows, "")
    for kind in ("parquet", "jsonl", "json"):
        assert read(tmp_path / kind, task, split) == expected, kind


def test_a_missing_file_says_what_was_looked_for(tmp_path):
    (tmp_path / "cola").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no split train of cola. Looked for train-\*\.parquet, .*CoLA"):
        load_rows(tmp_path, GLUE["cola"].train)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.jsonl", '{"sentence": "a", "label": 1}\n{"sentence"', "line 2: not JSON"),
        ("train.jsonl", '["a", 1]\n', "line 1: expected an object"),
        ("train.parquet", "no parquet", "not a readable Parquet file"),
        ("train.tsv", "a\tb\nc\td\ne\tf\n", "3 of 3 lines have fewer than 4 columns"),
    ],
)
def test_broken_files_are_named(name, content, message, tmp_path):
    path = tmp_path / "cola" / name
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as raised:
        load_rows(tmp_path, GLUE["cola"].train)
    assert str(path) in str(raised.value)


def test_one_broken_line_is_skipped_and_told(tmp_path, capsys):
    path = write_official_tsv(tmp_path, "sst2", "train", make_rows("sst2", 5))
    path.write_text(path.read_text() + "cut off\n")
    assert len(load_rows(tmp_path, GLUE["sst2"].train)[0]) == 5
    assert "1 of 6 lines skipped" in capsys.readouterr().err


def test_bytes_that_are_no_text_are_named(tmp_path):
    path = tmp_path / "cola" / "train.jsonl"
    path.parent.mkdir()
    path.write_bytes(b'{"sentence": "\xff"}')
    with pytest.raises(ValueError, match=r"train\.jsonl: not UTF-8"):
        load_rows(tmp_path, GLUE["cola"].train)


@pytest.mark.parametrize("content", ["{}", '{"data": [{"paragraphs": [{"context": "a"}]}]}', "[1", "[1]"])
def test_other_json_than_squads_is_told(content, tmp_path):
    (tmp_path / "dev-v1.1.json").write_text(content)
    with pytest.raises(ValueError, match="not in the layout of SQuAD's JSON"):
        load_rows(tmp_path, SQUAD["squad"].validation[0])


@pytest.mark.parametrize(
    ("absent", "data", "remedy"), [("datasets", False, "--data"), ("pyarrow", True, "pip install pyarrow")]
)
def test_missing_packages_are_named_with_the_remedy(absent, data, remedy, tmp_path, monkeypatch):
    write_parquet(tmp_path / "cola" / "train.parquet", make_rows("cola", 2))
    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == absent:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(OSError, match=remedy):
        load_rows(tmp_path if data else None, GLUE["cola"].train)


def test_local_files_need_no_datasets(tmp_path, monkeypatch):
    write_parquet(tmp_path / "cola" / "train.parquet", make_rows("cola", 2))
    real = builtins.__import__

    def without(name, *rest):
        assert name.split(".")[0] != "datasets"
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert len(load_rows(tmp_path, GLUE["cola"].train)[0]) == 2


def test_the_hub_out_of_reach_is_told():
    # Tests run offline.
    with pytest.raises(OSError, match="cannot get cola, split train, of nyu-mll/glue from the hub"):
        load_rows(None, GLUE["cola"].train)


@pytest.mark.real_data
@pytest.mark.parametrize("name", [*GLUE, *SQUAD])
def test_real_tasks_are_read(name):
    folder = os.environ.get("SHAREDQKV_DATA")
    if not folder:
        pytest.skip("SHAREDQKV_DATA names no folder with glue/ and squad/")
    task = get_task(name)
    for split in (task.train, *task.validation):
        if name == "squad_v2" and split.name == "train":
            continue  # validation is enough to see that it is read
        examples = read(Path(folder), task, split)
        assert len(examples) > 50
        assert len({example.id for example in examples}) == len(examples)
