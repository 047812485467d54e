"""Documents out of one local file: text, JSON Lines, Parquet or Arrow, plain or compressed, in bounded memory.

Bytes that are not UTF-8 come out as lone surrogates, so that whoever uses the text can count and replace them.
"""

import codecs
import gzip
import io
import json
import lzma
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

TextDocuments = Literal["blank-line", "line", "file"]


@dataclass(frozen=True)
class TextOptions:
    """Where the documents are in a file."""

    column: str = "text"
    """In JSON Lines, Parquet and Arrow."""
    ends: TextDocuments = "blank-line"
    """What ends a document of a text file."""


Batch = tuple[list[str], float]
"""Some documents, and the share of the file read so far."""

SEPARATORS = {"blank-line": re.compile(r"\n[ \t\r]*\n"), "line": re.compile(r"\n"), "file": None}
COMPRESSIONS = (".gz", ".xz", ".zst")
READ_BYTES = 1 << 20
UNPACKED_IN_MEMORY = 64 << 20
LONGEST_DOCUMENT = 2_000_000
"""In characters; a longer document is cut at white space, so that memory stays flat."""
LONGEST_LINE = 64 << 20
"""In bytes, of JSON Lines: a longer one is taken for a file that is no JSON Lines."""


def format_of(path: Path) -> str | None:
    """The suffix that names the format, without that of the compression; None when the file is not for us."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in READERS else None


def known_formats() -> str:
    return f"{', '.join(READERS)}, plain or {'/'.join(COMPRESSIONS)}"


def read_documents(path: Path, options: TextOptions) -> Iterator[Batch]:
    """The documents of a file in order. A damaged file is an error that names it."""
    import pyarrow

    format_name = format_of(path)
    if format_name is None:
        raise ValueError(f"{path}: unknown kind of file; known are {known_formats()}")
    size = max(1, path.stat().st_size)
    try:
        with open(path, "rb") as raw, tempfile.SpooledTemporaryFile(UNPACKED_IN_MEMORY) as unpacked:
            stream = _decompressed(raw, path)
            if format_name == ".parquet" and stream is not raw:
                # Parquet is read from its end, which a compressed stream cannot do.
                shutil.copyfileobj(stream, unpacked)
                stream = cast(IO[bytes], unpacked)
            for documents, share in READERS[format_name](stream, options):
                yield documents, raw.tell() / size if share is None else share
    except _ContentError as error:
        raise ValueError(f"{path}: {error}") from error
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{path}: cannot be read ({error}); the file is damaged or cut off: fetch it again") from error


def cut_long(text: str) -> list[str]:
    """The text in pieces of at most LONGEST_DOCUMENT characters, cut at white space where there is any."""
    pieces = []
    while len(text) > LONGEST_DOCUMENT:
        line_end, space = (text.rfind(mark, 1, LONGEST_DOCUMENT) for mark in "\n ")
        cut = line_end if line_end > 0 else space if space > 0 else LONGEST_DOCUMENT
        pieces.append(text[:cut])
        text = text[cut:]
    return [*pieces, text]


class _ContentError(ValueError):
    """The file can be read, but what is in it is not what was expected."""


def _decompressed(raw: IO[bytes], path: Path) -> IO[bytes]:
    match path.suffix.lower():
        case ".gz":
            return cast(IO[bytes], gzip.GzipFile(fileobj=raw))
        case ".xz":
            return cast(IO[bytes], lzma.LZMAFile(raw))
        case ".zst":
            import pyarrow

            return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(raw), "zstd"))
    return raw


def _read_text(stream: IO[bytes], options: TextOptions) -> Iterator[tuple[list[str], None]]:
    separator = SEPARATORS[options.ends]
    decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
    pending = ""
    while chunk := stream.read(READ_BYTES):
        pending += decoder.decode(chunk)
        *complete, pending = separator.split(pending) if separator else [pending]
        *cut, pending = cut_long(pending)
        yield complete + cut, None
    yield [pending + decoder.decode(b"", final=True)], None


def _read_json_lines(stream: IO[bytes], options: TextOptions) -> Iterator[tuple[list[str], None]]:
    documents: list[str] = []
    size = number = 0
    while line := stream.readline(LONGEST_LINE):
        number += 1
        if len(line) == LONGEST_LINE:
            raise _ContentError(f"line {number} is over {LONGEST_LINE >> 20} MiB: one JSON object a line is expected")
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.isspace():
            continue
        documents.append(_text_of_line(line, number, options.column))
        size += len(line)
        if size >= READ_BYTES:
            yield documents, None
            documents, size = [], 0
    yield documents, None


def _text_of_line(line: bytes, number: int, column: str) -> str:
    try:
        row = json.loads(line.decode("utf-8", "surrogateescape"))
    except json.JSONDecodeError as error:
        raise _ContentError(f"line {number} is not JSON ({error.msg}): one JSON object a line is expected") from error
    if not isinstance(row, dict) or column not in row:
        keys = ", ".join(row) if isinstance(row, dict) else f"a {type(row).__name__}, not an object"
        raise _ContentError(f"line {number} has no {column!r} (it has: {keys}); name the text with --text-column")
    text = row[column] or ""
    if not isinstance(text, str):
        raise _ContentError(f"line {number}: {column!r} is a {type(text).__name__}, not text; see --text-column")
    return text


def _read_parquet(stream: IO[bytes], options: TextOptions) -> Iterator[tuple[list[str], float]]:
    from pyarrow.parquet import ParquetFile

    # With a read buffer a row group is decoded piece by piece, however large it is.
    file = ParquetFile(stream, buffer_size=READ_BYTES, pre_buffer=False)
    _check_column(file.schema_arrow, options.column)
    rows = max(1, file.metadata.num_rows)
    size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
    batch_rows = min(max(1, READ_BYTES * rows // max(1, size)), 1 << 14)
    done = 0
    for batch in file.iter_batches(batch_size=batch_rows, columns=[options.column], use_threads=False):
        done += batch.num_rows
        yield _texts(batch.column(0)), done / rows


def _read_arrow(stream: IO[bytes], options: TextOptions) -> Iterator[tuple[list[str], None]]:
    import pyarrow

    reader = pyarrow.ipc.open_stream(stream)
    _check_column(reader.schema, options.column)
    for batch in reader:
        yield _texts(batch.column(options.column)), None


def _check_column(schema: Any, column: str) -> None:
    from pyarrow import types

    if column not in schema.names:
        raise _ContentError(f"has no column {column!r} (it has: {', '.join(schema.names)}); see --text-column")
    kind = schema.field(column).type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        raise _ContentError(f"column {column!r} is {kind}, not text; see --text-column")


def _texts(column: Any) -> list[str]:
    import pyarrow

    # As bytes first: Arrow raises on the first string that is not UTF-8.
    values = column.cast(pyarrow.large_string()).cast(pyarrow.large_binary()).to_pylist()
    return [value.decode("utf-8", "surrogateescape") if value else "" for value in values]


READERS: dict[str, Callable[[Any, TextOptions], Iterator[tuple[list[str], float | None]]]] = {
    ".txt": _read_text,
    ".jsonl": _read_json_lines,
    ".json": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
}
