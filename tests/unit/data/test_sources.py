import types

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sharedqkv.data import sources
from sharedqkv.data.reading import TextOptions
from sharedqkv.data.sources import NamedCorpus, fetch_corpus, read_blocks, resolve_source, sample_documents

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub_folder(tmp_path, monkeypatch):
    """A corpus in the hub's form; `datasets` loads a folder like a repository."""
    folder = tmp_path / "hub"
    (folder / "en").mkdir(parents=True)
    configs = "configs:\n- config_name: en\n  data_files:\n  - split: train\n    path: en/train-*\n"
    (folder / "README.md").write_text(f"---\n{configs}---\n", encoding="utf-8")
    rows = [f"Sentence {number} ." for number in range(25)]
    pq.write_table(pa.table({"text": rows[:12], "url": rows[:12]}), folder / "en/train-00000-of-00002.parquet")
    pq.write_table(pa.table({"text": rows[12:], "url": rows[12:]}), folder / "en/train-00001-of-00002.parquet")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return folder


@pytest.fixture
def hub_commit(monkeypatch):
    asked = []

    def dataset_info(self, repository, revision):
        asked.append((repository, revision))
        return types.SimpleNamespace(sha=COMMIT)

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    return asked


def texts_of(source, **options):
    return [text for block in read_blocks([source], TextOptions(**options)) for text in block.texts]


def test_weights_and_equals_signs_in_paths(tmp_path):
    for name in ("a.txt", "b=2.txt", "c=0.5"):
        path = tmp_path / name
        path.mkdir() if name == "c=0.5" else path.write_text("x", encoding="utf-8")
    (tmp_path / "c=0.5/x.txt").write_text("x", encoding="utf-8")
    found = {}
    for name in ("a.txt", "a.txt=0.25", "b=2.txt", "b=2.txt=3", "c=0.5", "c=0.5=1e-1"):
        source = resolve_source(str(tmp_path / name), "train")
        found[name] = (source.files[0].relative_to(tmp_path).as_posix(), source.weight)
    assert found == {
        "a.txt": ("a.txt", None),
        "a.txt=0.25": ("a.txt", 0.25),
        "b=2.txt": ("b=2.txt", None),
        "b=2.txt=3": ("b=2.txt", 3.0),
        "c=0.5": ("c=0.5/x.txt", None),
        "c=0.5=1e-1": ("c=0.5/x.txt", 0.1),
    }
    for weight in ("0", "-1", "nan", "inf"):
        with pytest.raises(ValueError, match="positive number"):
            resolve_source(f"{tmp_path / 'a.txt'}={weight}", "train")


def test_a_folder_gives_its_files_in_order_and_ignores_others(tmp_path):
    for name in ("b.txt", "a/z.jsonl.gz", "README.md", ".hidden.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x", encoding="utf-8")
    names = [file.relative_to(tmp_path).as_posix() for file in resolve_source(str(tmp_path), "train").files]
    assert names == ["a/z.jsonl.gz", "b.txt"]


def test_a_folder_in_splits_gives_the_split_asked_for(tmp_path):
    for name in ("train-00000-of-00002.parquet", "train-00001-of-00002.parquet", "validation.parquet", "test.parquet"):
        pq.write_table(pa.table({"text": ["x"]}), tmp_path / name)
    names = {s: [f.name for f in resolve_source(str(tmp_path), s).files] for s in ("train", "validation")}
    assert names["train"] == ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"]
    assert names["validation"] == ["validation.parquet"]
    (tmp_path / "validation.parquet").unlink()
    with pytest.raises(ValueError, match="no file named validation"):
        resolve_source(str(tmp_path), "validation")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "no such file or folder, nor a named corpus .wikipedia, bookcorpus."),
        ("a.csv", "unknown kind of file"),
    ],
)
def test_what_is_no_source(tmp_path, name, message):
    (tmp_path / "a.csv").write_text("x", encoding="utf-8")
    with pytest.raises(ValueError, match=f"{name}: {message}"):
        resolve_source(str(tmp_path / name), "train")
    with pytest.raises(ValueError, match="holds no file of a known kind"):
        resolve_source(str(tmp_path), "train")


def test_a_named_corpus_is_loaded_at_the_resolved_commit(hub_folder, hub_commit, monkeypatch):
    corpus = NamedCorpus(str(hub_folder), "en", "main")
    monkeypatch.setitem(sources.NAMED_CORPORA, "wikipedia", corpus)
    source = resolve_source("wikipedia=2", "train")
    assert (source.commit, source.repository, source.weight) == (COMMIT, str(hub_folder), 2.0)
    assert texts_of(source, column="url") == [f"Sentence {number} ." for number in range(25)]
    resolve_source("wikipedia@v1.2=2", "train")
    assert hub_commit == [(str(hub_folder), "main"), (str(hub_folder), "v1.2")]


def test_a_full_commit_needs_no_question_to_the_hub(hub_folder, hub_commit):
    commit, files = fetch_corpus(NamedCorpus(str(hub_folder), "en", "main"), COMMIT[::-1])
    assert commit == COMMIT[::-1]
    assert files
    assert hub_commit == []


def test_the_commit_is_what_gets_loaded(hub_commit, monkeypatch):
    loaded = {}

    def load_dataset(repository, config, split, revision, keep_in_memory):
        loaded.update(repository=repository, config=config, split=split, revision=revision)
        return types.SimpleNamespace(cache_files=[{"filename": "/somewhere/x.arrow"}])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    source = resolve_source("bookcorpus", "train")
    assert loaded == {"repository": "bookcorpus/bookcorpus", "config": None, "split": "train", "revision": COMMIT}
    assert [str(file) for file in source.files] == ["/somewhere/x.arrow"]
    assert source.rows_per_document > 1


def test_sentence_rows_are_joined_into_documents_across_files(hub_folder, hub_commit, monkeypatch):
    corpus = NamedCorpus(str(hub_folder), "en", "main", rows_per_document=10)
    monkeypatch.setitem(sources.NAMED_CORPORA, "bookcorpus", corpus)
    rows = [f"Sentence {number} ." for number in range(25)]
    joined = ["\n".join(rows[start : start + 10]) for start in (0, 10, 20)]
    assert texts_of(resolve_source("bookcorpus", "train")) == joined


def test_a_hub_out_of_reach_is_an_error_with_a_remedy(monkeypatch):
    def unreachable(self, repository, revision):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", unreachable)
    with pytest.raises(OSError, match=r"wikimedia/wikipedia at revision main.*no route to host.*Parquet files"):
        resolve_source("wikipedia", "train")


def test_blocks_end_with_the_document_that_fills_them(tmp_path, monkeypatch, write_jsonl):
    monkeypatch.setattr(sources, "BLOCK_CHARACTERS", 10)
    files = [
        write_jsonl(tmp_path / "a.jsonl", ["aaaa", "bbbb", "cccc", "dd"]),
        write_jsonl(tmp_path / "b.jsonl", ["eeeeeeee"]),
    ]
    folder = resolve_source(str(tmp_path), "train")
    other = resolve_source(str(files[0]), "validation")
    blocks = list(read_blocks([folder, other], TextOptions()))
    assert [(block.source, block.texts) for block in blocks] == [
        (0, ["aaaa", "bbbb", "cccc"]),
        (0, ["dd", "eeeeeeee"]),
        (1, ["aaaa", "bbbb", "cccc"]),
        (1, ["dd"]),
    ]
    assert [[file.name for file in block.new_files] for block in blocks] == [["a.jsonl"], ["b.jsonl"], ["a.jsonl"], []]
    assert sum(block.input_bytes for block in blocks) == 2 * files[0].stat().st_size + files[1].stat().st_size


def test_the_sample_is_bounded_and_takes_from_every_file(tmp_path, write_jsonl):
    for name in "abcd":
        write_jsonl(tmp_path / f"{name}.jsonl", [f"{name}{number}" for number in range(500)])
    sample = list(sample_documents([resolve_source(str(tmp_path), "train")], 400, TextOptions()))
    assert {text[0] for text in sample if text} == set("abcd")
    assert sum(map(len, sample)) <= 400
