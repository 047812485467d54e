"""Scores on the tasks, with their tests."""

from collections.abc import Mapping

from sharedqkv.evidence.comparison import Comparison
from sharedqkv.evidence.report.document import Block, Cell, Details, Figure, Paragraph, Record, Section, Table
from sharedqkv.evidence.report.figures import Difference, Style, draw_differences
from sharedqkv.evidence.report.measures import Measures, unit_scores
from sharedqkv.evidence.report.sections.common import NONE, comparisons, legend, mark_of, test_record
from sharedqkv.evidence.report.words import baseline_in_words, code, counted, interval, points, several, with_std
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
    compared = {
        **quality.by_task,
        **{(quality.average, a): c for (a, b), c in quality.on_average.items() if b == study.baseline_of(a)},
    }
    rows, records = [], []
    for entrant in study.entrants:
        found = {task: scores.get(entrant.name) for task, scores in quality.scores.items()}
        cells = [_score_cell(scores, compared.get((task, entrant.name))) for task, scores in found.items()]
        runs = max((len(scores.seeds) for scores in found.values() if scores), default=0)
        rows.append([Cell(entrant.name), *cells, Cell(str(runs), runs)])
        records += [
            _score_record(scores, compared.get((task, entrant.name))) for task, scores in found.items() if scores
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
    quality, study = measures.quality, measures.study
    family = "all tasks and models" + (" with the same baseline" if len(study.baselines) > 1 else "")
    sentences = [legend(baseline_in_words(study), family), "Runs are fine-tuned models."]
    if len(quality.on_average) > 1:
        alone = next(iter(quality.on_average))
        sentences.append(
            f"Averages are a family of their own, but for the main question, {' against '.join(map(code, alone))}."
        )
    found = [*quality.by_task.values(), *quality.on_average.values()]
    if found and not any(c.could_be_called for c in found):
        sentences.append(f"With {counted(found[0].units_a, found[0].unit)} of each no difference can get a mark.")
    pretrainings = {model: len(scores.pretrainings) for model, scores in quality.averages().items()}
    single = [code(model) for model, count in pretrainings.items() if count == 1]
    has_spread = any(len(unit_scores(scores)) > 1 for scores in quality.averages().values())
    if has_spread and len(single) == len(pretrainings):
        sentences.append("± is between fine-tuning seeds of one checkpoint.")
    elif has_spread and single:
        sentences.append(f"± is between pre-training seeds; of {several(single)}, with one, between fine-tuning seeds.")
    return " ".join(sentences)


def _differences(measures: Measures, looks: Mapping[str, Style]) -> Figure:
    quality, study = measures.quality, measures.study
    main = [(quality.average, c) for (a, b), c in quality.on_average.items() if b == study.baseline_of(a)]
    found = [*main, *((task, c) for (task, _), c in quality.by_task.items())]
    by_task: dict[str, list[Difference]] = {}
    for task, c in found:
        by_task.setdefault(task, []).append(
            Difference(c.model_a, 100 * c.difference, 100 * c.interval[0], 100 * c.interval[1])
        )
    records = [{"task": task, "model": c.model_a, "baseline": c.model_b, **test_record(c)} for task, c in found]
    told = "; ".join(f"{task}, {c.model_a}: {points(c.difference)} ({interval(c.interval)})" for task, c in main)
    drawn_from = "seeds and examples"
    if not all(c.counts_seeds for _, c in found):
        drawn_from = "examples, and over seeds where there are several of each"
    return Figure(
        name="differences",
        caption=f"Difference in points from {baseline_in_words(study)}; bars: 95 % intervals over {drawn_from}",
        description=f"A panel for each task with a point and an interval for each model. {told}.",
        drawing=draw_differences("differences", by_task, " or ".join(study.baselines), looks),
        records=records,
    )


def _every_comparison(measures: Measures) -> Details:
    found = [*measures.quality.on_average.values(), *measures.quality.by_task.values()]
    return comparisons("Every comparison", "comparisons", "Differences in points", found, points)
