"""The report on robustness: words and tables in Markdown, the same as CSV and JSON, and curves as pictures."""

import csv
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sharedqkv.evidence.robustness import Analysis, Claim, Curve, DomainScore, Estimate
from sharedqkv.robustness.domains import DOMAINS

STYLES = (("#0b62a4", "o", "-"), ("#d1495b", "s", "--"), ("#2e8b57", "^", "-."), ("#8a5a00", "D", ":"))
"""Colour, marker and line of each model, told apart without colours too."""
_COLUMNS = 3


def write_report(analysis: Analysis, folder: Path) -> Path:
    """Returns the Markdown file."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {
        task: _draw([curve for curve in analysis.curves if curve.task == task], folder / f"noise-{task}")
        for task in dict.fromkeys(curve.task for curve in analysis.curves)
    }
    tables = {
        "curves": _curve_points(analysis.curves),
        "noise": _noise_rows(analysis.curves),
        "domains": _domain_rows(analysis.domains),
        "claims": [_claim_row(claim) for claim in analysis.claims],
    }
    for name, rows in tables.items():
        _write_csv(folder / f"{name}.csv", rows)
    plain = {**dataclasses.asdict(analysis), "verdicts": [claim.verdict for claim in analysis.claims]}
    (folder / "robustness.json").write_text(json.dumps(plain, indent=2), encoding="utf-8")
    report = folder / "report.md"
    report.write_text("\n".join(_markdown(analysis, pictures)) + "\n", encoding="utf-8")
    return report


def _markdown(analysis: Analysis, pictures: dict[str, str | None]) -> list[str]:
    lines = [f"# Robustness of {', '.join(analysis.models)}", ""]
    if analysis.claims:
        lines += _claims_in_words(analysis)
    for task, picture in pictures.items():
        curves = [curve for curve in analysis.curves if curve.task == task]
        lines += [f"## {task} under noise", ""]
        if picture:
            lines += [
                f"![Score of {', '.join(analysis.models)} on {task} against the severity of each noise]({picture})",
                "",
            ]
        lines += [
            f"{curves[0].examples:,} examples, {curves[0].noise_seeds} noise seed(s); chance is "
            f"{_points(curves[0].chance)} points. Losses are means over severities, in points, with "
            f"{100 * (1 - analysis.alpha):g} % intervals; the relative one is a share of what lies between the clean "
            "score and chance.",
            "",
            *_table(_noise_rows(curves)),
            "",
        ]
    if analysis.domains:
        lines += ["## Other domains", "", *_table(_domain_rows(analysis.domains)), "", *_notes(analysis.domains), ""]
    if analysis.left_out:
        lines += ["## Left out", "", *(f"- {name}: {reason}" for name, reason in analysis.left_out.items()), ""]
    return lines


def _claims_in_words(analysis: Analysis) -> list[str]:
    unit = analysis.claims[0].comparison.unit
    rows = [_claim_row(claim) for claim in analysis.claims]
    short = [{name: row[name] for name in ("claim", "difference", "interval", "p", "verdict")} for row in rows]
    return [
        "## Claims",
        "",
        *headlines(analysis),
        "",
        f"The unit of the tests is the {unit}; p has Holm's correction over all claims of one kind, "
        "those above and the others apart. "
        + ("These are statements about these checkpoints, not about variants." if unit.startswith("fine") else ""),
        "",
        *_table(short),
        "",
    ]


def headlines(analysis: Analysis) -> list[str]:
    """The main claims."""
    return [
        f"- {claim.comparison.model_a} does better than {claim.comparison.model_b} on {claim.subject} "
        f"({claim.measure}): **{claim.verdict}**"
        for claim in analysis.claims
        if claim.main
    ]


def _points(fraction: float) -> str:
    return f"{100 * fraction + 0.0:.1f}".replace("-0.0", "0.0")


def _with_interval(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    return f"{_points(estimate.mean)} ({_points(estimate.low)} to {_points(estimate.high)})"


def _claim_row(claim: Claim) -> dict[str, Any]:
    c = claim.comparison
    return {
        "claim": f"{c.model_a} over {c.model_b}: {claim.subject}",
        "measure": claim.measure,
        "difference": _points(c.difference),
        "interval": f"{_points(c.interval[0])} to {_points(c.interval[1])}",
        "p": f"{c.p_corrected:.2g}",
        "smallest p": f"{c.smallest_p_corrected:.2g}",
        "detectable": "–" if c.smallest_difference is None else _points(c.smallest_difference),
        "verdict": claim.verdict,
    }


def _noise_rows(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    return [
        {
            "task": curve.task,
            "noise": curve.noise,
            "model": curve.model,
            "clean": _points(curve.scores[0].mean),
            "worst": _points(curve.scores[-1].mean),
            "absolute loss": _with_interval(curve.absolute_loss),
            "relative loss": _with_interval(curve.relative_loss),
            "area": _with_interval(curve.area),
        }
        for curve in curves
    ]


def _curve_points(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    return [
        {
            "task": curve.task,
            "noise": curve.noise,
            "model": curve.model,
            "severity": severity,
            "level": level,
            "score": score.mean,
            "low": score.low,
            "high": score.high,
        }
        for curve in curves
        for severity, level, score in zip(curve.severities, curve.levels, curve.scores, strict=True)
    ]


def _domain_rows(domains: Sequence[DomainScore]) -> list[dict[str, Any]]:
    return [
        {
            "task": domain.task,
            "domain": domain.domain,
            "model": domain.model,
            "examples": f"{domain.examples:,}",
            "score": _with_interval(domain.score),
            "in domain": _points(domain.in_domain),
            "chance": _points(domain.chance),
            "relative loss": _with_interval(domain.relative_loss),
        }
        for domain in domains
    ]


def _notes(domains: Sequence[DomainScore]) -> list[str]:
    notes = {}
    for domain in domains:
        counts = "".join(f"; {what}: {count:,}" for what, count in domain.counts.items())
        notes[domain.domain] = f"- {domain.domain}: {DOMAINS[domain.domain].note}{counts}"
    return list(notes.values())


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([str(row[name]) for name in names] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        path.unlink(missing_ok=True)  # of an earlier report
        return
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _draw(curves: Sequence[Curve], stem: Path) -> str | None:
    """A panel for each noise; the file's name, or None without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    noises = list(dict.fromkeys(curve.noise for curve in curves))
    models = list(dict.fromkeys(curve.model for curve in curves))
    columns = min(_COLUMNS, len(noises))
    lines = -(-len(noises) // columns)
    figure, panels = pyplot.subplots(
        lines, columns, figsize=(3.4 * columns, 2.5 * lines + 0.5), sharey=True, squeeze=False, layout="constrained"
    )
    for panel in panels.flat[len(noises) :]:
        panel.set_visible(False)
    for noise, panel in zip(noises, panels.flat, strict=False):
        for curve in (curve for curve in curves if curve.noise == noise):
            colour, marker, line = STYLES[models.index(curve.model) % len(STYLES)]
            levels = [100 * level for level in curve.levels]
            scores = [100 * score.mean for score in curve.scores]
            bounds = ([100 * getattr(score, side) for score in curve.scores] for side in ("low", "high"))
            panel.plot(levels, scores, color=colour, marker=marker, linestyle=line, markersize=4, label=curve.model)
            panel.fill_between(levels, *bounds, color=colour, alpha=0.15, linewidth=0)
        panel.axhline(100 * curves[0].chance, color="grey", linewidth=1, linestyle=(0, (1, 3)))
        panel.set_title(noise, fontsize=10)
        panel.grid(alpha=0.3)
    figure.supxlabel("% of characters or tokens changed, or of the embeddings' standard deviation added", fontsize=9)
    figure.supylabel(f"{curves[0].task}: score in points", fontsize=9)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=len(models), fontsize=9, frameon=False)
    for suffix in ("png", "svg"):
        figure.savefig(f"{stem}.{suffix}", dpi=130)
    pyplot.close(figure)
    return f"{stem.name}.png"
