"""Quality against parameters and against time."""

from collections.abc import Mapping
from statistics import mean, median, stdev

from sharedqkv.evidence.report.document import Block, Figure, Paragraph, Section
from sharedqkv.evidence.report.figures import Point, Style, draw_pareto
from sharedqkv.evidence.report.measures import Measures, unit_scores


def price_section(measures: Measures, looks: Mapping[str, Style]) -> Section:
    parameters = {model: cost.parameters.model / 1e6 for model, cost in measures.costs.items()}
    time, time_label = _training_time(measures)
    figures = [
        _figure("quality_parameters", measures, parameters, "parameters, millions", looks),
        _figure("quality_time", measures, time, time_label, looks, timed=True),
    ]
    blocks: list[Block] = [figure for figure in figures if figure is not None]
    if blocks:
        better = "higher" if measures.quality.averages() else "lower"
        blocks.append(
            Paragraph(
                f"Further left is cheaper, {better} is better. The dotted line joins the models that no other beats in "
                "both.",
                kind="note",
            )
        )
    else:
        blocks.append(Paragraph(measures.study.absence("pretrain"), kind="missing"))
    return Section("price", "Quality for its price", blocks)


def _figure(
    name: str,
    measures: Measures,
    prices: Mapping[str, float],
    price_label: str,
    looks: Mapping[str, Style],
    timed: bool = False,
) -> Figure | None:
    quality, label = _quality_points(measures)
    found = {model: Point(price, *quality[model]) for model, price in prices.items() if model in quality}
    if not found:
        return None
    told = "; ".join(f"{model}: {point.x:.4g}, {point.y:.4g}" for model, point in found.items())
    return Figure(
        name=name,
        caption=f"{label[0].upper()}{label[1:]}, against {price_label}; bars are standard deviations between seeds",
        description=f"A point for each model ({price_label}; {label}): {told}.",
        drawing=draw_pareto(name, found, price_label, label, bool(measures.quality.averages()), looks),
        records=[
            {"model": model, price_label: point.x, label: point.y, "standard deviation": point.deviation}
            for model, point in found.items()
        ],
        timed=timed,
    )


def _quality_points(measures: Measures) -> tuple[dict[str, tuple[float, float]], str]:
    """Model → value and its deviation, and what it is: the average score, or the loss where nothing was fine-tuned."""
    averages = measures.quality.averages()
    if averages:
        name = "average score" if measures.quality.average == "average" else measures.quality.average
        values = {model: (100 * unit_scores(scores)).tolist() for model, scores in averages.items()}
        label = f"{name}, points"
    else:
        values = {model: [run.final_loss for run in runs] for model, runs in measures.study.pretraining.items()}
        label = "held-out loss, nats"
    return {model: (mean(mine), stdev(mine) if len(mine) > 1 else 0.0) for model, mine in values.items()}, label


def _training_time(measures: Measures) -> tuple[dict[str, float], str]:
    """The bench's training step where there is one: it is measured with care; otherwise minutes of pre-training.

    Nothing where runs shared a device; the section on speed says so.
    """
    bench = measures.study.bench
    if bench is not None:
        steps = {model: 1000 * median(timing.train_step_s) for model, timing in bench.entrants.items()}
        return steps, "time of a training step, ms"
    runs = measures.study.pretraining if measures.study.side_by_side == 1 else {}
    return {model: mean(run.seconds for run in mine) / 60 for model, mine in runs.items()}, "minutes of pre-training"
