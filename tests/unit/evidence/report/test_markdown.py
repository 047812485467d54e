"""The Markdown twin: what it escapes, what it marks."""

from sharedqkv.evidence.report.document import (
    Cell,
    Code,
    Details,
    Document,
    Drawing,
    Figure,
    Paragraph,
    Section,
    Table,
    strip_timed,
)
from sharedqkv.evidence.report.markdown import markdown


def lines_of(*blocks):
    return markdown(Document("T <1>", "", [Section("s", "S", blocks)])).splitlines()


def test_markup_is_escaped_but_not_in_names():
    assert lines_of(Paragraph("a_b *c* | <d> `e_f`"))[4] == r"a\_b \*c\* \| \<d\> `e_f`"
    assert lines_of()[0] == r"# T \<1\>"


def test_tables():
    rows = [[Cell("shared"), Cell("84.1", 0.841, mark="worse"), Cell("holds", verdict=True)]]
    table = Table("t", "Scores", ("model", "score", "verdict"), rows, footer=[[Cell("chance"), Cell("50"), Cell("–")]])
    assert lines_of(table)[4:] == [
        "**Scores**",
        "",
        "| model | score | verdict |",
        "| --- | --- | --- |",
        "| shared | 84.1 ▼ | **holds** |",
        "| chance | 50 | – |",
    ]


def test_figures_details_and_code():
    figure = Figure("f", "caption", "what [CLS] sees", Drawing("<svg>", b""), [], timed=True)
    text = "\n".join(lines_of(figure, Details("more", [Code("a_b < c")])))
    assert r"![what \[CLS\] sees](figures/timed_f.png)" in text
    assert "<details><summary>more</summary>\n\n```\na_b < c\n```\n\n</details>" in text


def test_what_is_timed_can_be_stripped():
    table = Table("t", "c", ("a", "b"), [[Cell("x"), Cell("3 ms", timed=True)]])
    text = strip_timed("\n".join(lines_of(Paragraph("5 s", timed=True), table)))
    assert "| x |  |" in text
    assert "ms" not in text
    assert "5 s" not in text
