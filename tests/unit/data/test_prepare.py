import hashlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
from transformers import AutoTokenizer

from sharedqkv.data import steps
from sharedqkv.data.manifest import Manifest
from sharedqkv.data.prepare import PrepareArguments, prepare
from sharedqkv.data.shards import ShardedRows
from sharedqkv.data.tokenizer import load_tokenizer, tokenizer_hash


@pytest.fixture
def run(tmp_path, vocabulary):
    def run(*sources, output="out", **arguments):
        arguments = {"tokenizer": str(vocabulary), "length": 32, "processes": 1, **arguments}
        return prepare(PrepareArguments(output=str(tmp_path / output), source=tuple(map(str, sources)), **arguments))

    return run


def contents(folder):
    """The hash of every file, by name."""
    files = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def texts_of(folder, split="train"):
    """The pieces of text in the rows, as the tokenizer spells them."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    rows = ShardedRows.open(folder, split)
    return [tokenizer.decode(rows[index], skip_special_tokens=True) for index in range(len(rows))]


@pytest.mark.parametrize("layout", ["chunks", "packed", "pairs"])
def test_the_same_bytes_whatever_the_number_of_processes(
    run, tmp_path, make_documents, write_jsonl, small_blocks, layout
):
    documents = make_documents(150)
    first = write_jsonl(tmp_path / "a.jsonl", documents[:100])
    second = write_jsonl(tmp_path / "b.jsonl", documents[90:])
    for processes in (1, 2, 3):
        manifest = run(f"{first}=2", f"{second}=1", output=str(processes), layout=layout, processes=processes)
        assert not (tmp_path / str(processes) / ".work").exists()
    assert contents(tmp_path / "1") == contents(tmp_path / "2") == contents(tmp_path / "3")
    assert manifest.train.rows > 100


def test_every_token_of_the_corpus_is_in_a_packed_row(
    run, tmp_path, make_documents, write_jsonl, small_blocks, vocabulary
):
    documents = make_documents(80)
    manifest = run(write_jsonl(tmp_path / "a.jsonl", documents), layout="packed", validation_fraction=0.2)
    tokenizer = load_tokenizer(str(vocabulary))
    expected = Counter(token for text in documents for token in tokenizer(text, add_special_tokens=False)["input_ids"])
    found = Counter()
    for split in ("train", "validation"):
        rows = ShardedRows.open(tmp_path / "out", split, verify=True)
        for index in range(len(rows)):
            found.update(token for token in rows[index].tolist() if token not in tokenizer.all_special_ids)
    assert found == expected
    assert manifest.train.tokens + manifest.validation.tokens == expected.total()
    assert manifest.train.documents + manifest.validation.documents == 80
    assert manifest.train.dropped_tokens == 0


def test_the_manifest_says_what_is_there(run, tmp_path, make_documents, write_jsonl, vocabulary):
    documents = make_documents(40)
    path = write_jsonl(tmp_path / "a.jsonl", [*documents, documents[3], "  ", f" {documents[5]}\n"])
    manifest = run(path, length=24)
    assert Manifest.read(tmp_path / "out") == manifest
    (source,) = manifest.sources
    assert (source.documents, source.duplicates, source.repaired) == (42, 2, 0)
    assert source.text_bytes == sum(len(text.encode()) for text in [*documents, documents[3], documents[5]])
    assert [(file.path, file.bytes) for file in source.files] == [(str(path), path.stat().st_size)]
    assert source.rows == manifest.train.rows + manifest.validation.rows
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out/tokenizer")
    assert manifest.tokenizer_hash == tokenizer_hash(tokenizer) == tokenizer_hash(load_tokenizer(str(vocabulary)))
    assert (manifest.cls_id, manifest.sep_id) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
    for shard in manifest.train.shards:
        assert np.load(tmp_path / "out" / shard.file.name).shape == (shard.rows, 24)
        assert hashlib.sha256((tmp_path / "out" / shard.file.name).read_bytes()).hexdigest() == shard.file.sha256


def test_duplicate_documents_are_dropped_and_never_lines(run, tmp_path, small_blocks):
    """The same line in many documents stays; a document that comes again, in another file too, does not."""
    line = "a b c d " * 8
    texts = [f"{line}\n{name} {line}" for name in ("x", "y", "x")]
    (tmp_path / "a.txt").write_text("\n\n".join(texts), encoding="utf-8")
    (tmp_path / "b.txt").write_text(f"{texts[1]}\n\nz {line}", encoding="utf-8")
    manifest = run(tmp_path / "a.txt", tmp_path / "b.txt", layout="packed", validation_fraction=0.0)
    assert [(source.documents, source.duplicates) for source in manifest.sources] == [(3, 1), (2, 1)]
    assert manifest.train.documents == 3
    words = Counter(" ".join(texts_of(tmp_path / "out")).split())
    assert words == {"x": 1, "y": 1, "z": 1, **dict.fromkeys("abcd", 5 * 8)}


def test_validation_documents_are_whole_and_not_in_train(run, tmp_path, make_documents, write_jsonl, small_blocks):
    documents = [f"unique{number} {text}" for number, text in enumerate(make_documents(300, sentences=1))]
    manifest = run(write_jsonl(tmp_path / "a.jsonl", documents), layout="packed", validation_fraction=0.1, length=128)
    assert 10 < manifest.validation.documents < 60
    named = {split: set(" ".join(texts_of(tmp_path / "out", split)).split()) for split in ("train", "validation")}
    names = {split: {word for word in words if word.startswith("unique")} for split, words in named.items()}
    assert not names["train"] & names["validation"]


def test_a_validation_source_is_never_trained_on(run, tmp_path, make_documents, write_jsonl):
    documents = make_documents(60)
    train = write_jsonl(tmp_path / "a.jsonl", documents)
    held_out = write_jsonl(tmp_path / "b.jsonl", documents[:10])
    manifest = run(train, layout="packed", validation_source=(str(held_out),))
    assert (manifest.validation.documents, manifest.train.documents) == (10, 50)
    assert [(source.split, source.duplicates) for source in manifest.sources] == [("validation", 0), ("train", 10)]


def test_weights_are_shares_of_the_rows(run, tmp_path, make_documents, write_jsonl, small_blocks):
    large = write_jsonl(tmp_path / "large.jsonl", make_documents(120, seed=1))
    small = write_jsonl(tmp_path / "small.jsonl", make_documents(30, seed=2))
    all_of_it = {source.name: source.rows for source in run(large, small, validation_fraction=0.0).sources}
    manifest = run(f"{large}=1", f"{small}=3", output="mixed", validation_fraction=0.0)
    rows = {source.name: source.rows for source in manifest.sources}
    assert rows[str(small)] == all_of_it[str(small)]
    assert rows[str(large)] == all_of_it[str(small)] // 3
    mixed, everything = (Counter(texts_of(tmp_path / name)) for name in ("mixed", "out"))
    assert mixed < everything


def test_a_trained_tokenizer(run, tmp_path, make_documents, write_jsonl, small_blocks):
    path = write_jsonl(tmp_path / "a.jsonl", make_documents(60))
    for processes in (1, 2):
        manifest = run(path, output=str(processes), tokenizer=None, train_vocab_size=300, processes=processes)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert manifest.vocab_size == len(AutoTokenizer.from_pretrained(tmp_path / "1/tokenizer")) == 300


def test_documents_of_any_length_and_text_that_is_broken(run, tmp_path, small_blocks, monkeypatch):
    monkeypatch.setattr("sharedqkv.data.reading.LONGEST_DOCUMENT", 5000)
    long = Random(0).choices("abcdefgh", k=20_000)
    (tmp_path / "a.txt").write_bytes(" ".join(long).encode() + b"\n\nx \xff\xfe y\n\n" + b"z" * 20_000)
    manifest = run(tmp_path / "a.txt", layout="packed", validation_fraction=0.0)
    assert manifest.sources[0].repaired == 1
    words = Counter(" ".join(texts_of(tmp_path / "out")).split())
    assert words == {**Counter(long), "x": 1, "y": 1}


def test_many_dropped_tails_are_told(run, tmp_path, make_documents, write_jsonl, caplog):
    run(write_jsonl(tmp_path / "a.jsonl", make_documents(40)), length=128)
    assert "fill no row: use --layout packed" in caplog.text


STOPPED_RUN = """
import os, signal, sys
import numpy as np
from sharedqkv.data import sources
from sharedqkv.data.prepare import PrepareArguments, prepare

sources.BLOCK_CHARACTERS = 10_000
source, tokenizer, output, processes = sys.argv[1:]

def write_half(file, **arrays):
    real_savez(file, **arrays)
    if len(os.listdir(output + "/.work/tokens")) > 5:
        os.truncate(file.fileno(), file.tell() // 2)
        os.kill(os.getpid(), signal.SIGKILL)

if processes == "1":
    real_savez, np.savez = np.savez, write_half
arguments = {"length": 32, "layout": "pairs", "processes": int(processes)}
prepare(PrepareArguments(output=output, source=(source,), tokenizer=tokenizer, **arguments))
"""


def test_killed_and_started_again_it_gives_the_same_bytes(
    run, tmp_path, make_documents, write_jsonl, small_blocks, vocabulary, monkeypatch
):
    """Killed while it writes a block, then while it tokenises, then while it lays out."""
    source = write_jsonl(tmp_path / "a.jsonl", make_documents(3000))
    work = tmp_path / "out/.work"
    command = [sys.executable, "-c", STOPPED_RUN, str(source), str(vocabulary), str(tmp_path / "out")]
    assert subprocess.run([*command, "1"], check=False).returncode == -signal.SIGKILL
    finished = [len(list(work.glob("tokens/0*.npz")))]
    for folder, parts in (("tokens", source.stat().st_size // 40_000), ("rows", 2)):
        with subprocess.Popen([*command, "2"]) as process:
            while len(list(work.glob(f"{folder}/0*.npz"))) < parts:
                assert process.poll() is None, "it ended before it could be killed"
                time.sleep(0.002)
            process.kill()
        finished.append(len(list(work.glob("tokens/0*.npz"))))
    assert not (tmp_path / "out/manifest.json").exists()
    assert finished == sorted(finished)
    assert 0 < finished[0] < finished[1] < finished[2]

    def no_more_tokenising(*task):
        raise AssertionError("finished blocks are tokenised again")

    monkeypatch.setattr(steps, "tokenise_block", no_more_tokenising)
    run(source, layout="pairs")
    monkeypatch.undo()
    monkeypatch.setattr("sharedqkv.data.sources.BLOCK_CHARACTERS", 10_000)
    run(source, layout="pairs", output="never stopped")
    assert contents(tmp_path / "out") == contents(tmp_path / "never stopped")


def interrupt_after(monkeypatch, blocks):
    """Let `blocks` blocks be tokenised, then fail."""
    real, calls = steps.tokenise_block, []

    def tokenise_block(*task):
        calls.append(task)
        if len(calls) > blocks:
            raise KeyboardInterrupt
        return real(*task)

    monkeypatch.setattr(steps, "tokenise_block", tokenise_block)


def count_tokenised(monkeypatch):
    """How many blocks are really tokenised from now on."""
    real, done = steps.tokenise_block, []

    def tokenise_block(path, *rest):
        done.extend([] if path.exists() else [path])
        return real(path, *rest)

    monkeypatch.setattr(steps, "tokenise_block", tokenise_block)
    return done


def test_a_replaced_input_file_costs_only_what_was_made_from_it(
    run, tmp_path, make_documents, write_jsonl, small_blocks, monkeypatch
):
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_jsonl(folder / "a.jsonl", make_documents(60, seed=1))
    write_jsonl(folder / "b.jsonl", make_documents(60, seed=2))
    with monkeypatch.context() as patch:
        interrupt_after(patch, 7)
        with pytest.raises(KeyboardInterrupt):
            run(folder)
    before = {path.name for path in (tmp_path / "out/.work/tokens").iterdir()}
    write_jsonl(folder / "b.jsonl", make_documents(50, seed=3))
    with monkeypatch.context() as patch:
        done = count_tokenised(patch)
        run(folder)
    run(folder, output="fresh")
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")
    kept = len(before) - len([path for path in done if path.name[:6] in {name[:6] for name in before}])
    assert 0 < kept < len(before)


def test_other_settings_are_an_error_until_it_is_finished_and_after(
    run, tmp_path, make_documents, write_jsonl, small_blocks, monkeypatch
):
    source = write_jsonl(tmp_path / "a.jsonl", make_documents(60))
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            run(source)
    with pytest.raises(
        ValueError, match=r"begun with other settings \(length was 32, now 64\).*choose another --output"
    ):
        run(source, length=64)
    run(source)
    before = contents(tmp_path / "out")
    with pytest.raises(
        ValueError, match=r'other settings \(layout was "chunks", now "packed"\).*choose another --output'
    ):
        run(source, layout="packed")
    assert contents(tmp_path / "out") == before


def test_a_finished_corpus_is_left_as_it_is(run, tmp_path, make_documents, write_jsonl, monkeypatch, caplog):
    source = write_jsonl(tmp_path / "a.jsonl", make_documents(20))
    manifest = run(source)
    before = contents(tmp_path / "out")
    done = count_tokenised(monkeypatch)
    assert run(source) == manifest
    assert "already prepared" in caplog.text
    assert not done
    assert contents(tmp_path / "out") == before


def test_a_damaged_manifest_is_named_and_its_remedy_works(run, tmp_path, make_documents, write_jsonl):
    source = write_jsonl(tmp_path / "a.jsonl", make_documents(20))
    run(source)
    before = contents(tmp_path / "out")
    manifest = tmp_path / "out/manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:50])
    with pytest.raises(ValueError, match=r"manifest.json is damaged.*delete it and run the same"):
        run(source)
    manifest.unlink()
    run(source)
    assert contents(tmp_path / "out") == before


def test_a_damaged_part_of_the_work_is_named_and_its_remedy_works(
    run, tmp_path, make_documents, write_jsonl, small_blocks, monkeypatch
):
    source = write_jsonl(tmp_path / "a.jsonl", make_documents(60))
    with monkeypatch.context() as patch:
        patch.setattr(steps, "lay_out_block", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(source)
    part = sorted((tmp_path / "out/.work/tokens").iterdir())[2]
    part.write_bytes(part.read_bytes()[:-100])
    with pytest.raises(ValueError, match=rf"{part.name} is damaged.*delete it and run the same command again"):
        run(source)
    part.unlink()
    run(source)
    run(source, output="fresh")
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def interrupted(*task):
    raise KeyboardInterrupt


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
def test_a_damaged_shard_is_made_anew(run, tmp_path, make_documents, write_jsonl, monkeypatch, caplog, damage):
    monkeypatch.setattr(steps, "SHARD_BYTES", 50 * 32 * 2)
    source = write_jsonl(tmp_path / "a.jsonl", make_documents(40))
    run(source)
    before = contents(tmp_path / "out")
    path = tmp_path / "out/train-00001.npy"
    data = path.read_bytes()
    match damage:
        case "flip":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "truncate":
            path.write_bytes(data[:200])
        case "delete":
            path.unlink()
    run(source)
    assert str(path) in caplog.text
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("documents", "arguments", "message"),
    [
        ([], {}, r"the corpus is empty: there is no text in .*a.jsonl"),
        (["  ", ""], {}, r"the corpus is empty: there is no text in .*a.jsonl"),
        (["too short"], {"length": 64, "validation_fraction": 0.0}, "shorter than a row. Use --layout packed"),
    ],
)
def test_nothing_to_train_on_is_an_error_and_leaves_nothing_behind(
    run, tmp_path, write_jsonl, documents, arguments, message
):
    with pytest.raises(ValueError, match=message):
        run(write_jsonl(tmp_path / "a.jsonl", documents), **arguments)
    assert not (tmp_path / "out").exists()


def test_training_text_that_is_all_held_out_is_an_error(run, tmp_path, make_documents, write_jsonl):
    source = write_jsonl(tmp_path / "a.jsonl", make_documents(20))
    with pytest.raises(ValueError, match="no document to train on: all are held out"):
        run(source, validation_source=(str(source),))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": ()}, "at least one --source"),
        ({"tokenizer": None}, "either a --tokenizer, or with --train-vocab-size"),
        ({"train_vocab_size": 100}, "either a --tokenizer, or with --train-vocab-size"),
        ({"tokenizer": None, "train_vocab_size": 5}, "--train-vocab-size must be at least 6, for the special tokens"),
        ({"validation_fraction": 1.0}, "--validation-fraction must be at least 0 and below 1, not 1.0"),
        ({"length": 4}, "--length must be at least 8, not 4"),
        ({"processes": 0}, "--processes must be at least 1, not 0"),
        ({"layout": "rows"}, "layout must be one of chunks, packed, pairs, not 'rows'"),
        ({"text_documents": "page"}, "text_documents must be one of blank-line, line, file, not 'page'"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        PrepareArguments(**{"output": "x", "source": ("a.txt",), "tokenizer": "vocab.txt", **arguments})


def test_a_vocabulary_too_small_for_the_text_is_refused_before_much_is_read(
    run, tmp_path, make_documents, write_jsonl, monkeypatch
):
    monkeypatch.setattr("sharedqkv.data.prepare.train_tokenizer", lambda *_: pytest.fail("much was read"))
    source = write_jsonl(tmp_path / "a.jsonl", make_documents(20))
    with pytest.raises(
        ValueError, match=r"--train-vocab-size 20 is too small for this text: give at least \d\d, for 5 s"
    ):
        run(source, tokenizer=None, train_vocab_size=20)


def test_weights_for_some_or_for_validation_are_errors(run, tmp_path, make_documents, write_jsonl):
    source = write_jsonl(tmp_path / "a.jsonl", make_documents(5))
    with pytest.raises(ValueError, match=r"a.jsonl has no weight, others have: give all of them one, or none"):
        run(f"{source}=1", source)
    with pytest.raises(ValueError, match="--validation-source takes no weight"):
        run(source, validation_source=(f"{source}=2",))
    assert not (tmp_path / "out").exists()


# Not ru_maxrss: a child starts with that of its parent.
PEAK_MEMORY = """
import re, sys
from pathlib import Path
from sharedqkv.data import sources, steps
from sharedqkv.data.prepare import PrepareArguments, prepare

sources.BLOCK_CHARACTERS = 100_000
steps.SHARD_BYTES = 1 << 20
source, tokenizer, output = sys.argv[1:]
prepare(PrepareArguments(output=output, source=(source,), tokenizer=tokenizer, processes=1))
print(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_corpus(tmp_path, make_documents, vocabulary):
    documents = make_documents(400)
    processes = []
    for copies in (10, 120):
        source = tmp_path / f"{copies}.jsonl"
        with source.open("w", encoding="utf-8") as file:
            for copy in range(copies):
                file.writelines(json.dumps({"text": f"{copy} {text}"}) + "\n" for text in documents)
        command = [sys.executable, "-c", PEAK_MEMORY, str(source), str(vocabulary), str(tmp_path / f"{copies}")]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    small, large = (int(process.communicate()[0]) / 1024 for process in processes)
    assert source.stat().st_size > 25 << 20
    assert large - small < 12, f"{small:.0f} MiB for a small corpus, {large:.0f} MiB for one twelve times as large"
