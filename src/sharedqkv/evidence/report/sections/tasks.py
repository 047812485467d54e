"""Scores on the tasks, with their tests."""

from collections.abc import Mapping

from sharedqkv.evidence.comparison import PRETRAINING, Comparison
from sharedqkv.evidence.report.document import Block, Cell, Details, Figure, Paragraph, Record, Section, Table
from sharedqkv.evidence.report.figures import Difference, Style, draw_differences
from sharedqkv.evidence.report.measures import Measures, unit_scores
from sharedqkv.evidence.report.sections.common import NONE, legend, mark_of, test_record
from sharedqkv.evidence.report.words import code, counted, interval, points, signed, with_std
from sharedqkv.evidence.runs import RunScores


def tasks_section(measures: Measures, looks: Mapping[str, Style]) -> Section:
    quality, study = measures.quality, measures.study
    blocks: list[Block] = []
    if not quality.scores:
        blocks.append(Paragraph(study.absence("finetune"), kind="missing"))
    else:
        blocks += [_scores_table(measures), Paragraph(_scores_note(measures), kind="note")]
        if quality.by_task or quality.on_average:
            blocks += [_differences(measures, looks), _every_comparison(measures)]
    blocks += [Paragraph(f"{what}: {why}", kind="missing") for what, why in quality.problems.items()]
    return Section("tasks", "Scores on the tasks", blocks)


def _scores_table(measures: Measures) -> Table:
    quality, study = measures.quality, measures.study
    comparisons = {
        **quality.by_task,
        **{(quality.average, a): c for (a, b), c in quality.on_average.items() if b == study.baseline.name},
    }
    rows, records = [], []
    for entrant in study.entrants:
        found = {task: scores.get(entrant.name) for task, scores in quality.scores.items()}
        cells = [_score_cell(scores, comparisons.get((task, entrant.name))) for task, scores in found.items()]
        runs = max((len(scores.seeds) for scores in found.values() if scores), default=0)
        rows.append([Cell(entrant.name), *cells, Cell(str(runs), runs)])
        records += [
            _score_record(scores, comparisons.get((task, entrant.name))) for task, scores in found.items() if scores
        ]
    constant = [Cell(points(quality.chance[t]), quality.chance[t]) if t in quality.chance else NONE for t in found]
    return Table(
        name="scores",
        caption="Scores in points: mean ± standard deviation between seeds",
        columns=("model", *quality.scores, "runs"),
        rows=rows,
        footer=[[Cell("best constant answer"), *constant, NONE]],
        records=records,
    )


def _score_cell(scores: RunScores | None, c: Comparison | None) -> Cell:
    if scores is None:
        return NONE
    units = unit_scores(scores)
    std = float(units.std(ddof=1)) if len(units) > 1 else None
    value = float(units.mean())
    return Cell(with_std(points(value), None if std is None else 100 * std, 1), value, mark_of(c))


def _score_record(scores: RunScores, c: Comparison | None) -> Record:
    units = unit_scores(scores)
    return {
        "task": scores.task,
        "model": scores.model,
        "mean": float(units.mean()),
        "std": float(units.std(ddof=1)) if len(units) > 1 else None,
        "seeds": len(units),
        "fine-tuned models": len(scores.seeds),
        "examples": scores.examples,
        **test_record(c),
    }


def _scores_note(measures: Measures) -> str:
    quality, baseline = measures.quality, measures.study.baseline.name
    sentences = [legend(baseline, "all tasks and models"), "Runs are fine-tuned models."]
    if len(quality.on_average) > 1:
        alone = next(iter(quality.on_average))
        sentences.append(
            f"Averages are a family of their own, but for the main question, {' against '.join(map(code, alone))}."
        )
    found = [*quality.by_task.values(), *quality.on_average.values()]
    if found and not any(c.could_be_called for c in found):
        sentences.append(f"With {counted(found[0].units_a, found[0].unit)} of each no difference can get a mark.")
    if found and found[0].unit != PRETRAINING:
        sentences.append("± is between fine-tuning seeds of one checkpoint.")
    return " ".join(sentences)


def _differences(measures: Measures, looks: Mapping[str, Style]) -> Figure:
    quality, baseline = measures.quality, measures.study.baseline.name
    main = [(quality.average, c) for (_, b), c in quality.on_average.items() if b == baseline]
    found = [*main, *((task, c) for (task, _), c in quality.by_task.items())]
    by_task: dict[str, list[Difference]] = {}
    for task, c in found:
        by_task.setdefault(task, []).append(
            Difference(c.model_a, 100 * c.difference, 100 * c.interval[0], 100 * c.interval[1])
        )
    records = [{"task": task, "model": c.model_a, "baseline": c.model_b, **test_record(c)} for task, c in found]
    told = "; ".join(f"{task}, {c.model_a}: {points(c.difference)} ({interval(c.interval)})" for task, c in main)
    return Figure(
        name="differences",
        caption=f"Difference from {code(baseline)} in points; bars are 95 % intervals over seeds and examples",
        description=f"A panel for each task with a point and an interval for each model. {told}.",
        drawing=draw_differences("differences", by_task, baseline, looks),
        records=records,
    )


def _every_comparison(measures: Measures) -> Details:
    found = [*measures.quality.on_average.values(), *measures.quality.by_task.values()]
    rows = [
        [
            Cell(f"{c.task}: {c.model_a} against {c.model_b}"),
            Cell(signed(points(c.difference)), c.difference),
            Cell(interval(c.interval), c.interval[0]),
            Cell(f"{c.p:.2g}", c.p),
            Cell(f"{c.p_corrected:.2g}", c.p_corrected),
            Cell(f"{c.smallest_p_corrected:.2g}", c.smallest_p_corrected),
            NONE if c.smallest_difference is None else Cell(points(c.smallest_difference), c.smallest_difference),
        ]
        for c in found
    ]
    table = Table(
        name="comparisons",
        caption="Differences in points",
        columns=(
            "comparison",
            "difference",
            "95 % interval",
            "p",
            "p corrected",
            "smallest possible",
            "would be found",
        ),
        rows=rows,
        records=[
            {"task": c.task, "model": c.model_a, "against": c.model_b, "unit": c.unit, "units": c.units_a}
            | test_record(c)
            | {"would be found": c.smallest_difference, "Hedges' g": c.effect_size}
            for c in found
        ],
    )
    note = (
        "Smallest possible is the least corrected p that so few seeds can reach; would be found is the difference that "
        "the test calls 4 times in 5."
    )
    return Details("Every comparison", [table, Paragraph(note, kind="note")])
