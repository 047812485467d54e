"""The report's figures. Lines differ by marker and dash as well as by colour; ink takes the colour of the text around.

The same data give the same bytes: no dates, and ids that depend on the figure's name alone.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sharedqkv.evidence.report.document import BETWEEN_FIELDS, Drawing
from sharedqkv.evidence.robustness import Curve

_INK = "#010203"
"""Stands for the colour of the text; black in PNG."""
_COLOURS = ("#3b7dd8", "#d1495b", "#2f9e6e", "#b8790b", "#8f6ac8", "#1693a5", "#c2571a", "#7d8590")
"""Readable on white and on near-black."""
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.4)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "axes.grid": True,
    "grid.color": _INK,
    "grid.alpha": 0.12,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.markersize": 5,
}
_WIDTH = 6.0
_LONGEST_LABEL = 29
"""Letters in a line beside a panel."""


@dataclass(frozen=True)
class Style:
    """How a model looks in every figure."""

    colour: str
    marker: str
    dash: Any

    def line(self) -> dict[str, Any]:
        return {"color": self.colour, "linestyle": self.dash, "linewidth": 1.4}

    def points(self) -> dict[str, Any]:
        return {"color": self.colour, "marker": self.marker, "markeredgecolor": "none", "linestyle": "none"}


def styles(models: Sequence[str]) -> dict[str, Style]:
    """Another marker for each of ten models; the next ten have other dashes with them."""
    return {
        model: Style(
            _COLOURS[i % len(_COLOURS)], _MARKERS[i % len(_MARKERS)], _DASHES[(i + i // len(_MARKERS)) % len(_DASHES)]
        )
        for i, model in enumerate(models)
    }


def draw(name: str, size: tuple[float, float], paint: Callable[[Any], None]) -> Drawing:
    """`paint` gets an empty matplotlib figure."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": name}):
        # Letters of the PNG are a little wider than those it is laid out with, so it gets a margin.
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.08))
        paint(figure)
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        figure.set_layout_engine("none")  # it is laid out now; doing so again takes as long as drawing
        figure.savefig(png, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    return Drawing(_for_page(svg.getvalue(), name), png.getvalue())


def _for_page(svg: str, name: str) -> str:
    """Ids of its own, since several figures share a page; no fixed size; ink in the colour of the text."""
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg)
    return re.sub(r'(id="|href="#|url\(#)', rf"\1{name}-", svg)


def _legend(figure: Any, handles: Sequence[Any], labels: Sequence[str]) -> None:
    columns = _legend_columns(labels)
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, fontsize=8.5, handlelength=2.6)


def _legend_columns(labels: Sequence[str]) -> int:
    return max(1, int(_WIDTH / (0.5 + 0.07 * max(map(len, labels)))))  # inches of a handle and of a letter


def _legend_height(labels: Sequence[str]) -> float:
    """Inches, over those of one line."""
    return 0.18 * (-(-len(labels) // _legend_columns(labels)) - 1)


def draw_losses(
    name: str,
    training: Mapping[str, Sequence[tuple[int, float]]],
    held_out: Mapping[str, Sequence[tuple[int, float]]],
    unigram_entropy: float | None,
    looks: Mapping[str, Style],
) -> Drawing:
    """Lines are training losses, markers held-out ones: (tokens, loss) of the same models."""

    def paint(figure: Any) -> None:
        from matplotlib.lines import Line2D

        axes = figure.subplots()
        for model in training:
            for curve, look in ((training[model], looks[model].line()), (held_out[model], looks[model].points())):
                axes.plot([tokens / 1e6 for tokens, _ in curve], [loss for _, loss in curve], **look)
        if unigram_entropy is not None:
            axes.axhline(unigram_entropy, color=_INK, linewidth=0.8, linestyle=(0, (1, 3)))
            axes.annotate(
                "unigram entropy", (1, unigram_entropy), xycoords=("axes fraction", "data"), xytext=(-2, 3),
                textcoords="offset points", ha="right", fontsize=8,
            )  # fmt: skip
        axes.set_ylim(top=_worth_showing([*training.values(), *held_out.values()], unigram_entropy))
        axes.set_xlabel("million tokens")
        axes.set_ylabel("loss, nats a hidden token")
        handles = [Line2D([], [], **{**looks[model].points(), **looks[model].line()}) for model in training]
        _legend(figure, handles, list(training))

    return draw(name, (_WIDTH, 3.6 + _legend_height(list(training))), paint)


def _worth_showing(curves: Sequence[Sequence[tuple[int, float]]], unigram_entropy: float | None) -> float:
    """The highest loss after the first twentieth of the tokens: the fall before it would dwarf all differences."""
    end = max(tokens for curve in curves for tokens, _ in curve)
    losses = [loss for curve in curves for tokens, loss in curve if tokens >= 0.05 * end]
    return 1.03 * max([*losses, *([unigram_entropy] if unigram_entropy else [])])


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    deviation: float


def draw_pareto(
    name: str,
    points: Mapping[str, Point],
    x_label: str,
    y_label: str,
    higher_is_better: bool,
    looks: Mapping[str, Style],
) -> Drawing:
    def paint(figure: Any) -> None:
        from matplotlib.lines import Line2D

        axes = figure.subplots()
        front = best_for_price(list(points.values()), higher_is_better)
        axes.plot([p.x for p in front], [p.y for p in front], color=_INK, linewidth=0.8, linestyle=(0, (1, 3)))
        handles = []
        for model, point in points.items():
            look = looks[model]
            bar = {"yerr": [point.deviation], "ecolor": look.colour, "elinewidth": 1, "capsize": 2.5}
            axes.errorbar([point.x], [point.y], **look.points(), **bar)
            handles.append(Line2D([], [], **look.points()))
        axes.margins(x=0.1, y=0.1)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        _legend(figure, handles, list(points))

    return draw(name, (_WIDTH, 3.2 + _legend_height(list(points))), paint)


def best_for_price(points: Sequence[Point], higher_is_better: bool) -> list[Point]:
    """Those that no other one beats in both price and quality, cheapest first."""
    sign = 1 if higher_is_better else -1
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.x, -sign * point.y)):
        if not front or sign * point.y > sign * front[-1].y:
            front.append(point)
    return front


@dataclass(frozen=True)
class Difference:
    model: str
    value: float
    low: float
    high: float


def draw_differences(
    name: str, by_task: Mapping[str, Sequence[Difference]], baseline: str, looks: Mapping[str, Style]
) -> Drawing:
    """A panel a task: how far each model is from the baseline, with intervals, in points."""
    models = list(dict.fromkeys(d.model for differences in by_task.values() for d in differences))
    labels = [_folded(model) for model in models]
    row_height = 0.25 + 0.08 * max(label.count("\n") for label in labels)

    def paint(figure: Any) -> None:
        for (task, differences), panel in zip(by_task.items(), _panels(figure, len(by_task)), strict=False):
            panel.axvline(0, color=_INK, linewidth=0.8)
            for d in differences:
                look, bars = looks[d.model], [[d.value - d.low], [d.high - d.value]]
                panel.errorbar(
                    [d.value], [models.index(d.model)], xerr=bars, **look.points(), ecolor=look.colour, capsize=2.5
                )
            panel.set_title(task)
            panel.set_yticks(range(len(models)), labels)
            panel.set_ylim(len(models) - 0.5, -0.5)
            panel.grid(axis="y", visible=False)
        figure.supxlabel(f"points more or less than {baseline}", fontsize=9)

    return draw(name, (_WIDTH, _lines(len(by_task)) * (row_height * len(models) + 0.7) + 0.3), paint)


def _folded(model: str) -> str:
    """In lines that leave the panels room; a variant's fields are not torn apart."""
    lines = [""]
    for part in BETWEEN_FIELDS.split(model):
        lines[-1:] = [lines[-1] + part] if len(lines[-1] + part) <= _LONGEST_LABEL else [lines[-1], part]
    return "\n".join(line for line in lines if line)


def _columns(panels: int) -> int:
    return 2 if panels in (2, 4) else min(3, panels)


def _lines(panels: int) -> int:
    return -(-panels // _columns(panels))


def _panels(figure: Any, count: int) -> list[Any]:
    every = figure.subplots(_lines(count), _columns(count), sharey=True, squeeze=False).flat
    for panel in every[count:]:
        panel.set_visible(False)
    return list(every[:count])


def draw_noise(name: str, curves: Sequence[Curve], looks: Mapping[str, Style]) -> Drawing:
    """A panel a noise, for one task."""
    noises = list(dict.fromkeys(curve.noise for curve in curves))
    means = [100 * score.mean for curve in curves for score in curve.scores] + [100 * curves[0].chance]

    def paint(figure: Any) -> None:
        panels = _panels(figure, len(noises))
        for noise, panel in zip(noises, panels, strict=True):
            for curve in (curve for curve in curves if curve.noise == noise):
                look, levels = looks[curve.model], [100 * level for level in curve.levels]
                scores = [100 * score.mean for score in curve.scores]
                panel.plot(levels, scores, **{**look.points(), **look.line()}, markersize=4, label=curve.model)
                low, high = ([100 * getattr(score, side) for score in curve.scores] for side in ("low", "high"))
                panel.fill_between(levels, low, high, color=look.colour, alpha=0.08, linewidth=0)
            panel.axhline(100 * curves[0].chance, color=_INK, linewidth=0.8, linestyle=(0, (1, 3)))
            panel.set_ylim(min(means) - 5, max(means) + 5)  # with few seeds bands go far beyond
            panel.set_title(noise)
        figure.supxlabel("% of characters or tokens changed, or of the embeddings' deviation added", fontsize=9)
        figure.supylabel("score in points", fontsize=9)
        _legend(figure, *panels[0].get_legend_handles_labels())

    return draw(name, (_WIDTH, 1.8 * _lines(len(noises)) + 0.7 + _legend_height(list(looks))), paint)


def draw_maps(name: str, tokens: Sequence[str], layers: np.ndarray, shown: Sequence[int]) -> Drawing:
    """Attention of one model: a panel a layer, whose row says where that token looks."""

    def paint(figure: Any) -> None:
        from matplotlib.colors import LinearSegmentedColormap

        colours = LinearSegmentedColormap.from_list("attention", ["#f3f6fb", _COLOURS[0], "#0b1f44"])
        for layer, panel in zip(shown, figure.subplots(1, len(shown), squeeze=False)[0], strict=True):
            panel.imshow(layers[layer], cmap=colours, vmin=0, vmax=layers.max(), interpolation="none")
            panel.set_title(f"layer {layer + 1}")
            panel.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=6.5)
            panel.set_yticks(range(len(tokens)), tokens if layer == shown[0] else [""] * len(tokens), fontsize=6.5)
            panel.tick_params(length=0, pad=2)
            panel.grid(visible=False)

    return draw(name, (0.6 * _WIDTH, 2.2), paint)
