"""A report as Markdown, with figures as links to their PNG files."""

import re
from collections.abc import Iterator, Sequence

from sharedqkv.evidence.report.document import (
    Block,
    Cell,
    Code,
    Details,
    Document,
    Figure,
    Paragraph,
    Table,
    file_stem,
    mark_timed,
)

_SPECIAL = re.compile(r"[\\*_\[\]<>|#]")
MARKS = {"": "", "better": " ▲", "worse": " ▼"}


def markdown(document: Document) -> str:
    parts = [f"# {_escaped(document.title)}"]
    if document.description:
        parts.append(_escaped(document.description))
    for section in document.sections:
        parts += [f"## {section.title}", *(part for block in section.blocks for part in _parts(block))]
    return "\n\n".join(parts) + "\n"


def _parts(block: Block) -> Iterator[str]:
    if isinstance(block, Details):
        yield f"<details><summary>{_escaped(block.summary)}</summary>"
        for inner in block.blocks:
            yield from _parts(inner)
        yield "</details>"
    else:
        text = _block(block)
        yield mark_timed(text) if block.timed else text


def _block(block: Paragraph | Code | Table | Figure) -> str:
    if isinstance(block, Paragraph):
        text = _escaped(block.text)
        return f"*{text}*" if block.kind == "missing" else text
    if isinstance(block, Code):
        return f"```\n{block.text}\n```"
    if isinstance(block, Figure):
        return f"![{_escaped(block.description)}](figures/{file_stem(block)}.png)\n\n{_escaped(block.caption)}"
    return f"**{_escaped(block.caption)}**\n\n{_table(block)}"


def _table(table: Table) -> str:
    lines: list[Sequence[str]] = [[_escaped(column) for column in table.columns], ["---"] * len(table.columns)]
    lines += [[_cell(cell) for cell in row] for row in (*table.rows, *table.footer)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(cell: Cell) -> str:
    text = _escaped(cell.text) + MARKS[cell.mark]
    if cell.verdict:
        text = f"**{text}**"
    return mark_timed(text) if cell.timed else text


def _escaped(text: str) -> str:
    """What Markdown or HTML would take for markup, but for names between backticks; one line, for tables."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if number % 2 else _SPECIAL.sub(r"\\\g<0>", part) for number, part in enumerate(parts))
