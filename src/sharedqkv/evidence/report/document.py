"""What a report is made of, before it becomes HTML or Markdown: sections of text, tables and figures.

Whatever depends on the clock or on memory (seconds, speed, bytes, dates) is marked `timed`. Both forms put it between
two comments, and HTML into an element of class "timed" too; `strip_timed` takes it out, and what is left of two
reports on the same results is equal to the byte. Files of figures and tables that are timed have names that start with
"timed_".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Record = Mapping[str, Any]
"""A line of a CSV file: column → value."""
Verdict = Literal["holds", "does not hold", "cannot be told", "not tested here"]

BETWEEN_FIELDS = re.compile(r"(?<=[:,])(?=\w)")
"""Where a model's long name, like `grouped:num_query_heads=7`, may go on in the next line."""
_TIMED = re.compile(r"<!--timed-->.*?<!--/timed-->", re.DOTALL)


def mark_timed(markup: str) -> str:
    return f"<!--timed-->{markup}<!--/timed-->"


def strip_timed(markup: str) -> str:
    """HTML or Markdown of a report without what depends on the clock or on memory."""
    return _TIMED.sub("", markup)


@dataclass(frozen=True)
class Paragraph:
    text: str
    """`Words` between backticks are names."""
    timed: bool = False
    kind: Literal["text", "note", "missing"] = "text"
    """A note explains; `missing` says that something is not there."""


@dataclass(frozen=True)
class Code:
    text: str
    timed: bool = False


@dataclass(frozen=True)
class Cell:
    text: str
    value: float | None = None
    """What the column is sorted by, where it is not the text."""
    mark: Literal["", "better", "worse"] = ""
    """A difference from the baseline that the test calls."""
    verdict: bool = False
    timed: bool = False


@dataclass(frozen=True)
class Table:
    name: str
    caption: str
    columns: Sequence[str]
    """The first names the rows."""
    rows: Sequence[Sequence[Cell]]
    footer: Sequence[Sequence[Cell]] = ()
    """Rows that are not sorted with the others."""
    records: Sequence[Record] = ()
    """The same in full, for CSV; the rows themselves where there are none."""
    prose: bool = False
    """Whether the cells hold sentences."""
    timed: bool = False


@dataclass(frozen=True)
class Drawing:
    svg: str
    png: bytes


@dataclass(frozen=True)
class Figure:
    name: str
    caption: str
    description: str
    """For those who cannot see it."""
    drawing: Drawing
    records: Sequence[Record]
    half: bool = False
    """Whether two stand side by side, where there is room."""
    timed: bool = False


@dataclass(frozen=True)
class Details:
    """Folded away until asked for."""

    summary: str
    blocks: Sequence["Block"]


Block = Paragraph | Code | Table | Figure | Details


@dataclass(frozen=True)
class Section:
    slug: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    title: str
    description: str
    sections: Sequence[Section]

    def tables(self) -> list[Table]:
        return [block for block in self._blocks() if isinstance(block, Table)]

    def figures(self) -> list[Figure]:
        return [block for block in self._blocks() if isinstance(block, Figure)]

    def _blocks(self) -> list[Block]:
        top = [block for section in self.sections for block in section.blocks]
        return [inner for block in top for inner in (block.blocks if isinstance(block, Details) else [block])]


def file_stem(block: Table | Figure) -> str:
    """Of its files."""
    return f"timed_{block.name}" if block.timed else block.name


def records_of(table: Table) -> list[Record]:
    if table.records:
        return list(table.records)
    return [
        {
            column: cell.text if cell.value is None else cell.value
            for column, cell in zip(table.columns, row, strict=True)
        }
        for row in (*table.rows, *table.footer)
    ]
