import os
import pickle

import numpy as np
import pytest

from sharedqkv.data import steps
from sharedqkv.data.manifest import DamagedCorpusError
from sharedqkv.data.prepare import PrepareArguments, prepare
from sharedqkv.data.shards import ShardedRows


@pytest.fixture
def prepared(tmp_path, vocabulary, make_documents, write_jsonl, monkeypatch):
    """A corpus of pairs in several shards."""
    monkeypatch.setattr(steps, "SHARD_BYTES", 50 * 32 * 2)
    source = write_jsonl(tmp_path / "corpus.jsonl", make_documents(60))
    folder = tmp_path / "out"
    arguments = {"layout": "pairs", "length": 32, "validation_fraction": 0.2, "processes": 1}
    prepare(PrepareArguments(output=str(folder), source=(str(source),), tokenizer=str(vocabulary), **arguments))
    return folder


def flip_byte(path, place=-5):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_rows_and_labels_are_those_of_the_files(prepared, split):
    rows = ShardedRows.open(prepared, split, verify=True)
    files = sorted(prepared.glob(f"{split}-?????.npy"))
    expected = np.concatenate([np.load(file) for file in files])
    labels = np.concatenate([np.load(file.with_suffix(".next_sentence.npy")) for file in files])
    assert len(rows) == len(expected) == rows.manifest.split(split).rows
    for index in range(len(rows)):
        np.testing.assert_array_equal(rows[index], expected[index])
        assert rows.next_sentence(index) == labels[index]
    assert (rows.length, rows.layout, rows[0].dtype) == (32, "pairs", np.int64)
    assert split == "validation" or len(files) > 3


def test_rows_are_copies_and_out_of_range_is_an_error(prepared):
    rows = ShardedRows.open(prepared, "train")
    first = rows[0]
    first[:] = 0
    assert rows[0].any()
    for index in (-1, len(rows)):
        with pytest.raises(IndexError, match=str(index)):
            rows[index]


def test_pickles_are_small_and_open_the_files_again(prepared):
    rows = ShardedRows.open(prepared, "train")
    pickled = pickle.dumps(rows)
    assert len(pickled) < 20_000
    np.testing.assert_array_equal(pickle.loads(pickled)[3], rows[3])


def test_a_truncated_shard_is_named(prepared):
    path = prepared / "train-00001.npy"
    os.truncate(path, path.stat().st_size - 64)
    with pytest.raises(DamagedCorpusError, match=rf"{path} is \d+ bytes long, not \d+; run the same sharedqkv prepare"):
        ShardedRows.open(prepared, "train")


def test_a_missing_shard_is_named(prepared):
    (prepared / "train-00001.next_sentence.npy").unlink()
    with pytest.raises(DamagedCorpusError, match=r"train-00001.next_sentence.npy is missing; run the same"):
        ShardedRows.open(prepared, "train")


def test_a_flipped_byte_is_found_when_verifying(prepared):
    flip_byte(prepared / "train-00002.npy")
    ShardedRows.open(prepared, "train")
    with pytest.raises(
        DamagedCorpusError, match=r"train-00002.npy is not what was written .sha256 differs.; run the same"
    ):
        ShardedRows.open(prepared, "train", verify=True)


@pytest.mark.parametrize("place", [0, 75])
def test_a_damaged_header_is_found_at_once(prepared, place):
    flip_byte(prepared / "train-00000.npy", place)
    with pytest.raises(DamagedCorpusError, match=r"train-00000.npy .*run the same"):
        ShardedRows.open(prepared, "train")


def test_a_split_without_rows_says_how_to_get_some(tmp_path, vocabulary, make_documents, write_jsonl):
    source = write_jsonl(tmp_path / "corpus.jsonl", make_documents(5))
    folder = tmp_path / "out"
    arguments = {"validation_fraction": 0.0, "length": 16, "processes": 1}
    prepare(PrepareArguments(output=str(folder), source=(str(source),), tokenizer=str(vocabulary), **arguments))
    with pytest.raises(ValueError, match=r"no validation rows.*--validation-source"):
        ShardedRows.open(folder, "validation")
    with pytest.raises(ValueError, match="layout chunks: only pairs have next-sentence labels"):
        ShardedRows.open(folder, "train").next_sentence(0)
