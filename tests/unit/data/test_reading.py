import gzip
import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sharedqkv.data import reading
from sharedqkv.data.reading import TextOptions, cut_long, format_of, read_documents

DOCUMENTS = [
    "A first one.\nIt has two lines.",
    "Zweites – mit Umlauten: äöü.",
    "三番目の文書です。",
    "x" * 300,
    "the last",
]


def everything(path, **options):
    batches = list(read_documents(path, TextOptions(**options)))
    assert all(0 <= share <= 1 for _, share in batches)
    return [text.strip() for documents, _ in batches for text in documents if text.strip()]


def write_plain(path, documents):
    match path.suffix:
        case ".txt":
            path.write_text("\n\n".join(documents), encoding="utf-8")
        case ".jsonl":
            import json

            path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8")
        case ".parquet":
            pq.write_table(pa.table({"id": range(len(documents)), "text": documents}), path, row_group_size=2)


def compress(path, suffix):
    if not suffix:
        return path
    data = path.read_bytes()
    target = path.with_name(path.name + suffix)
    match suffix:
        case ".gz":
            target.write_bytes(gzip.compress(data))
        case ".xz":
            target.write_bytes(lzma.compress(data))
        case ".zst":
            with pa.CompressedOutputStream(str(target), "zstd") as stream:
                stream.write(data)
    return target


@pytest.mark.parametrize("read_bytes", [7, 1 << 20])
@pytest.mark.parametrize("compression", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".parquet"])
def test_every_format_and_compression_gives_the_same_documents(tmp_path, monkeypatch, suffix, compression, read_bytes):
    monkeypatch.setattr(reading, "READ_BYTES", read_bytes)
    path = tmp_path / f"corpus{suffix}"
    write_plain(path, DOCUMENTS)
    path = compress(path, compression)
    assert everything(path) == DOCUMENTS


def test_joined_compressed_files_are_read_to_the_end(tmp_path):
    path = tmp_path / "two.txt.gz"
    path.write_bytes(gzip.compress(b"one\n\n") + gzip.compress(b"two"))
    assert everything(path) == ["one", "two"]


def test_what_ends_a_document_of_a_text_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\ntwo\r\n \t\r\nthree\n")
    assert everything(path) == ["one\ntwo", "three"]
    assert everything(path, ends="line") == ["one", "two", "three"]
    assert everything(path, ends="file") == ["one\ntwo\r\n \t\r\nthree"]


def test_bytes_that_are_not_utf8_become_surrogates(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"ab\xffcd")
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "ab\xffcd"}\n')
    column = pa.array([b"ab\xffcd"]).view(pa.string())
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    for path in tmp_path.iterdir():
        assert everything(path) == ["ab\udcffcd"]


def test_a_long_document_is_cut_at_white_space_and_loses_nothing(monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_DOCUMENT", 50)
    text = "word " * 40 + "y" * 120 + "\nend"
    pieces = cut_long(text)
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 50
    assert pieces[0].split() == ["word"] * 10


def test_a_text_file_without_separators_does_not_pile_up(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_DOCUMENT", 1000)
    monkeypatch.setattr(reading, "READ_BYTES", 300)
    path = tmp_path / "a.txt"
    path.write_text("some words " * 1000, encoding="utf-8")
    documents = everything(path)
    assert max(map(len, documents)) <= 1000
    assert " ".join(documents).split() == ["some", "words"] * 1000


def test_another_column_and_empty_values(tmp_path):
    column = pa.array(["one", None, "two"]).dictionary_encode()
    pq.write_table(pa.table({"body": column}), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text('{"body": "one"}\n\n{"body": null}\n{"body": "two"}\n', encoding="utf-8")
    for path in tmp_path.iterdir():
        assert everything(path, column="body") == ["one", "two"]


@pytest.mark.parametrize("compression", [".gz", ".xz", ".zst"])
def test_a_file_cut_off_is_named(tmp_path, compression):
    path = tmp_path / "corpus.txt"
    path.write_text(" ".join(map(str, range(20000))), encoding="utf-8")
    path = compress(path, compression)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(ValueError, match=rf"{path.name}.*cut off: fetch it again"):
        everything(path)


def test_a_parquet_file_cut_off_is_named(tmp_path):
    path = tmp_path / "corpus.parquet"
    write_plain(path, DOCUMENTS)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"corpus.parquet.*fetch it again"):
        everything(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "fine"}\n{"text": \n', "line 2 is not JSON"),
        (b'{"text": "fine"}\n{"body": "x"}\n', "line 2 has no 'text' .it has: body.*--text-column"),
        (b'["a list"]\n', "line 1 has no 'text'"),
        (b'{"text": 3}\n', "line 1: 'text' is a int, not text"),
    ],
)
def test_json_lines_that_are_wrong(tmp_path, content, message):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"a.jsonl: {message}"):
        everything(path)


def test_a_line_without_end_is_not_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_LINE", 100)
    path = tmp_path / "a.json"
    path.write_text('{"text": "' + "x" * 200, encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 1 is over .* one JSON object a line"):
        everything(path)


@pytest.mark.parametrize(("column", "message"), [("body", "no column 'body' .it has: text, n"), ("n", "'n' is int64")])
def test_parquet_without_the_text(tmp_path, column, message):
    pq.write_table(pa.table({"text": ["x"], "n": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=rf"a.parquet: .*{message}.*--text-column"):
        everything(tmp_path / "a.parquet", column=column)


def test_formats(tmp_path):
    names = {
        "a.txt": ".txt",
        "a.b.JSONL.GZ": ".jsonl",
        "a.parquet": ".parquet",
        "a.csv": None,
        "README": None,
        "a.gz": None,
    }
    assert {name: format_of(tmp_path / name) for name in names} == names
    with pytest.raises(ValueError, match=r"a.csv: unknown kind of file; known are .txt"):
        everything(tmp_path / "a.csv")
