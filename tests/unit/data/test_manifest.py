import dataclasses
import json

import pytest

from sharedqkv.data.manifest import (
    FORMAT,
    MANIFEST,
    DamagedCorpusError,
    FileRecord,
    InputRecord,
    Manifest,
    ShardRecord,
    SourceRecord,
    SplitRecord,
)
from sharedqkv.data.tokenizer import load_tokenizer, tokenizer_hash


@pytest.fixture
def manifest(vocabulary):
    file, labels = FileRecord("train-00000.npy", 10, "ab"), FileRecord("train-00000.next_sentence.npy", 3, "cd")
    return Manifest(
        format=FORMAT,
        layout="pairs",
        length=128,
        dtype="uint16",
        vocab_size=300,
        tokenizer_hash=tokenizer_hash(load_tokenizer(str(vocabulary))),
        pad_id=0,
        cls_id=2,
        sep_id=3,
        mask_id=4,
        settings={"layout": "pairs", "source": ["a=1"]},
        sources=(SourceRecord("a", "train", 1.0, None, None, (InputRecord("ä.txt", 5),), 5, 1, 0, 0, 2),),
        train=SplitRecord(1, 2, 3, 0, (ShardRecord(file, 2, 3, labels), ShardRecord(file, 2, 3, None))),
        validation=SplitRecord(0, 0, 0, 0, ()),
    )


def test_what_is_written_is_read(manifest, tmp_path):
    manifest.write(tmp_path)
    assert Manifest.read(tmp_path) == manifest
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST]


def test_a_missing_manifest_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path}/manifest.json is missing.*sharedqkv prepare"):
        Manifest.read(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(extra=1), "unknown key 'extra'"),
        (lambda data: data.pop("dtype"), "'dtype' is missing"),
        (lambda data: data["train"]["shards"][0].pop("rows"), "'rows' is missing"),
        (lambda data: data["train"]["shards"][0]["file"].update(size=1), "unknown key 'size'"),
        (lambda data: data.update(format=99), "not a manifest of format"),
        (lambda data: data.update(length="long"), "length must be a whole number"),
    ],
)
def test_a_manifest_that_is_wrong_is_named(manifest, tmp_path, change, message):
    data = json.loads(json.dumps(dataclasses.asdict(manifest)))
    change(data)
    (tmp_path / MANIFEST).write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"{MANIFEST}.*{message}"):
        Manifest.read(tmp_path)


def test_a_manifest_cut_off_is_named(manifest, tmp_path):
    manifest.write(tmp_path)
    path = tmp_path / MANIFEST
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DamagedCorpusError, match=rf"{MANIFEST} is damaged.*delete it and run"):
        Manifest.read(tmp_path)


def test_another_tokenizer_is_refused_and_both_are_named(manifest, vocabulary):
    manifest.check_tokenizer(load_tokenizer(str(vocabulary)))
    other = load_tokenizer(str(vocabulary), cased=True)
    with pytest.raises(ValueError, match="another tokenizer") as caught:
        manifest.check_tokenizer(other)
    assert manifest.tokenizer_hash[:16] in str(caught.value)
    assert tokenizer_hash(other)[:16] in str(caught.value)
