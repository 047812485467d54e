"""A report as one HTML file that needs nothing else: style, script and figures are inside."""

import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from sharedqkv.evidence.report.document import BETWEEN_FIELDS, Document, Figure, file_stem, mark_timed

_NAME = re.compile("`([^`]+)`")
_BETWEEN_WORDS = re.compile(r"(?<=_)(?=\w)")


def page(document: Document) -> str:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    filters: dict[str, Callable[..., Any]] = {
        "timed": lambda markup: Markup(mark_timed(str(markup))),
        "inline": _inline,
        "breakable": _breakable,
        "stem": file_stem,
        "kind": lambda block: type(block).__name__.lower(),
        "drawing": _drawing,
    }
    environment.filters |= filters
    resources = files("sharedqkv.evidence.report") / "resources"
    texts = {name: (resources / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")}
    template = environment.from_string(texts["page.html"])
    return template.render(document=document, style=Markup(texts["page.css"]), script=Markup(texts["page.js"])) + "\n"


def _inline(text: str) -> Markup:
    return Markup(_NAME.sub(r"<code>\1</code>", str(escape(text))))


def _breakable(name: str) -> Markup:
    """A model's or task's name that a narrow column may break: between its fields, or its words if it has none."""
    places = BETWEEN_FIELDS if BETWEEN_FIELDS.search(name) else _BETWEEN_WORDS
    return Markup(places.sub("<wbr>", str(_inline(name))))


def _drawing(figure: Figure) -> Markup:
    """The SVG with its name and description for screen readers."""
    ids = f"{figure.name}-title {figure.name}-description"
    title = f'<title id="{figure.name}-title">{escape(figure.caption.replace("`", ""))}</title>'
    description = f'<desc id="{figure.name}-description">{escape(figure.description)}</desc>'
    head, rest = figure.drawing.svg.split(">", 1)
    return Markup(f'{head} role="img" aria-labelledby="{ids}">{title}{description}{rest}')
