"""The HTML: one valid file that needs nothing else, for eyes and for screen readers."""

import re
from html.parser import HTMLParser

import pytest

from sharedqkv.evidence.report.document import Cell, Document, Paragraph, Section, Table, strip_timed
from sharedqkv.evidence.report.page import page

VOID = {"meta", "link", "path", "use", "image", "rect", "br", "wbr"}


class Elements(HTMLParser):
    """All elements with their attributes; fails on one that is closed in the wrong place."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def of(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="module")
def html(report):
    return (report / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def elements(html):
    return Elements(html)


def test_nothing_comes_from_outside(elements):
    addresses = [
        value
        for tag, attributes in elements.found
        for name, value in attributes.items()
        if name in ("src", "href", "xlink:href") and not value.startswith(("#", "data:"))
    ]
    assert all(re.match(r"(figures|tables)/\w+\.(svg|png|csv)$|report\.md$", address) for address in addresses)
    assert not elements.of("script")[0], "the script is inside"


def test_links_lead_somewhere(elements, report):
    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    for link in elements.of("a"):
        target = link["href"]
        assert target[1:] in ids if target.startswith("#") else (report / target).is_file(), target


def test_every_figure_and_table_can_be_read_aloud(html, elements):
    ids = {attributes["id"] for _, attributes in elements.found if "id" in attributes}
    drawings = [svg for svg in elements.of("svg") if svg.get("role") == "img"]
    assert len(drawings) == len(elements.of("figure")) > 5
    assert all(set(svg["aria-labelledby"].split()) <= ids for svg in drawings)
    assert len(elements.of("table")) == len(elements.of("caption")) == html.count("<thead>")
    assert all(head.get("scope") in ("col", "row") for head in elements.of("th"))
    assert {"header", "nav", "main", "footer"} <= {tag for tag, _ in elements.found}
    assert 'href="#content"' in html


def test_text_is_escaped():
    table = Table("t", "<b>", ("<c>",), [[Cell("<d>")]])
    text = page(Document("<a>", "", [Section("s", "S", [table, Paragraph("<e> & `<f>`")])]))
    assert "<h1>&lt;a&gt;</h1>" in text
    assert not re.search("<[bcdef]>", text)
    assert "&lt;e&gt; &amp; <code>&lt;f&gt;</code>" in text


def test_timed_parts_are_elements_of_that_class(html):
    timed = re.findall(r"<!--timed-->\s*<\w+ [^>]*class=\"[^\"]*timed", html)
    assert len(timed) == html.count("<!--timed-->") > 5
    assert 'class="timed' not in strip_timed(html)
    assert "A training step" not in strip_timed(html)


def test_long_names_break_between_their_fields():
    name = Cell("standard:num_hidden_layers=7,intermediate_size=1904")
    table = Table("sizes", "Sizes", ("model", "shared:bias=true"), [(name, Cell("1, 2: 3"))], [])
    text = page(Document("A title", "", [Section("one", "One", [table])]))
    assert '<th scope="row">standard:<wbr>num_hidden_layers=7,<wbr>intermediate_size=1904</th>' in text
    assert '<th scope="col">shared:<wbr>bias=true</th>' in text
    assert "1, 2: 3" in text


def test_names_without_fields_break_between_their_words():
    table = Table("scores", "Scores", ("model", "mnli_matched"), [(Cell("low_rank"), Cell("a_b"))], [])
    text = page(Document("A title", "", [Section("one", "One", [table])]))
    assert '<th scope="col">mnli_<wbr>matched</th>' in text
    assert '<th scope="row">low_<wbr>rank</th>' in text
    assert "a_b" in text
