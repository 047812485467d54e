"""What noise takes away, and scores on other domains."""

from collections.abc import Mapping, Sequence
from typing import Literal

from sharedqkv.evidence.comparison import Comparison
from sharedqkv.evidence.report.collect import NOT_ASKED, Study
from sharedqkv.evidence.report.document import Block, Cell, Details, Figure, Paragraph, Section, Table
from sharedqkv.evidence.report.figures import Style, draw_noise
from sharedqkv.evidence.report.measures import Measures
from sharedqkv.evidence.report.sections.common import NONE, comparisons, legend, mark_of
from sharedqkv.evidence.report.words import baseline_in_words, code, points
from sharedqkv.evidence.robustness import Analysis, DomainScore
from sharedqkv.robustness.domains import DOMAINS


def noise_section(measures: Measures, looks: Mapping[str, Style]) -> Section:
    analysis = measures.robustness.analysis
    blocks: list[Block] = []
    if analysis is not None and analysis.curves:
        for task in dict.fromkeys(curve.task for curve in analysis.curves):
            blocks.append(_noise_figure(task, analysis, looks))
        blocks += [
            _noise_table(analysis),
            Paragraph(
                "Points of the quality above chance that noise takes away, averaged over its severities; less is "
                f"better. {_legend(measures.study)} The dotted line is the best constant answer; "
                "bands are 95 % intervals.",
                kind="note",
            ),
            *_over_all(analysis, "noise", "Differences in points of the quality above chance that is kept"),
        ]
    else:
        blocks.append(_absence(measures.study, "noises"))
    blocks += [Paragraph(f"{what}: {why}", kind="missing") for what, why in measures.robustness.problems.items()]
    if analysis is not None and analysis.left_out:
        left_out = [Paragraph(f"{what}: {why}") for what, why in analysis.left_out.items()]
        blocks.append(Details("Left out of noise and other domains, and why", left_out))
    return Section("noise", "Under noise", blocks)


def _over_all(analysis: Analysis, what: Literal["noise", "domain"], caption: str) -> list[Details]:
    """Comparisons over all noises or domains of a task; those of single ones are marks in the table."""
    found = [claim for claim in analysis.claims if claim.main and claim.under_noise == (what == "noise")]
    title, tested = f"Comparisons over all {what}s of a task", [claim.comparison for claim in found]
    return [comparisons(title, f"{what}_comparisons", caption, tested, points)] if tested else []


def _legend(study: Study) -> str:
    same_baseline = " and with the same baseline" if len(study.baselines) > 1 else ""
    apart = f", those of {code(study.focus.name)} apart" if study.focus and len(study.entrants) > 2 else ""
    return legend(baseline_in_words(study), f"all claims of this kind{same_baseline}{apart}")


def _absence(study: Study, wanted: Literal["noises", "domains"]) -> Paragraph:
    return Paragraph(study.absence("robust") if study.info[wanted] else NOT_ASKED, kind="missing")


def _noise_figure(task: str, analysis: Analysis, looks: Mapping[str, Style]) -> Figure:
    curves = [curve for curve in analysis.curves if curve.task == task]
    told = "; ".join(
        f"{curve.noise}, {curve.model}: {points(curve.scores[0].mean)} to {points(curve.scores[-1].mean)}"
        for curve in curves
    )
    records = [
        {"task": task, "noise": curve.noise, "model": curve.model, "severity": severity, "level": level}
        | {"score": score.mean, "low": score.low, "high": score.high}
        for curve in curves
        for severity, level, score in zip(curve.severities, curve.levels, curve.scores, strict=True)
    ]
    return Figure(
        name=f"noise_{task}",
        caption=f"{task}: score against the strength of each noise",
        description=f"A panel for each noise. From clean to the strongest: {told}.",
        drawing=draw_noise(f"noise_{task}", curves, looks),
        records=records,
    )


def _noise_table(analysis: Analysis) -> Table:
    rows, records = [], []
    for task, noise in dict.fromkeys((curve.task, curve.noise) for curve in analysis.curves):
        cells = [Cell(f"{task}, {noise}")]
        for model in analysis.models:
            [curve] = [c for c in analysis.curves if (c.task, c.noise, c.model) == (task, noise, model)]
            loss, tested = curve.relative_loss, _comparison(analysis, f"{task}, {noise}", model)
            cells.append(Cell(points(loss.mean), loss.mean, mark_of(tested)) if loss else NONE)
            records.append(
                {"task": task, "noise": noise, "model": model, "clean": curve.scores[0].mean, "chance": curve.chance}
                | {"absolute loss": curve.absolute_loss.mean, "area": curve.area.mean}
                | {"relative loss": loss and loss.mean, "low": loss and loss.low, "high": loss and loss.high}
            )
        rows.append(cells)
    return Table(
        name="noise",
        caption="Share of the quality above chance that is lost, in points",
        columns=("task and noise", *analysis.models),
        rows=rows,
        records=records,
    )


def _comparison(analysis: Analysis, subject: str, model: str) -> Comparison | None:
    found = [claim.comparison for claim in analysis.claims if claim.subject == subject]
    return next((c for c in found if c.model_a == model), None)


def domains_section(measures: Measures) -> Section:
    analysis = measures.robustness.analysis
    if analysis is None or not analysis.domains:
        return Section("domains", "On other domains", [_absence(measures.study, "domains")])
    rows, records = [], []
    for task in dict.fromkeys(score.task for score in analysis.domains):
        at_home = {score.model: score.in_domain for score in analysis.domains if score.task == task}
        rows.append([Cell(f"{task}, at home"), *(Cell(points(value), value) for value in at_home.values()), NONE, NONE])
        for domain in dict.fromkeys(score.domain for score in analysis.domains if score.task == task):
            found = [score for score in analysis.domains if (score.task, score.domain) == (task, domain)]
            rows.append(_domain_row(f"{task} → {domain}", found, analysis))
            records += [
                {"task": task, "domain": domain, "model": score.model, "score": score.score.mean}
                | {"low": score.score.low, "high": score.score.high, "in domain": score.in_domain}
                | {"chance": score.chance, "examples": score.examples}
                for score in found
            ]
    table = Table(
        name="domains",
        caption="Scores in points on the task's own validation set (at home) and on sets from other domains",
        columns=("set", *analysis.models, "best constant answer", "examples"),
        rows=rows,
        records=records,
    )
    note = Paragraph(_legend(measures.study), kind="note")
    notes = {score.domain: DOMAINS[score.domain].note for score in analysis.domains}
    about = Details("What to know about these sets", [Paragraph(f"{name}: {text}") for name, text in notes.items()])
    tests = _over_all(analysis, "domain", "Differences in points")
    return Section("domains", "On other domains", [table, note, *tests, about])


def _domain_row(subject: str, scores: Sequence[DomainScore], analysis: Analysis) -> list[Cell]:
    marks = [mark_of(_comparison(analysis, subject, score.model)) for score in scores]
    cells = [Cell(points(s.score.mean), s.score.mean, mark) for s, mark in zip(scores, marks, strict=True)]
    first = scores[0]
    size = Cell(f"{first.examples:,}", first.examples)
    return [Cell(subject), *cells, Cell(points(first.chance), first.chance), size]
