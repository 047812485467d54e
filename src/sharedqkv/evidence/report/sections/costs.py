"""Size and arithmetic, counted; speed and memory, measured."""

from collections.abc import Sequence
from statistics import mean, median

from sharedqkv.evidence.report.bench import Bench, Timing
from sharedqkv.evidence.report.collect import Study
from sharedqkv.evidence.report.document import Block, Cell, Paragraph, Section, Table
from sharedqkv.evidence.report.measures import Measures
from sharedqkv.evidence.report.sections.common import NONE
from sharedqkv.evidence.report.words import code, counted, number, percent, rounded

_FLOPS_SLACK = 0.05
"""A measured ratio this much over the FLOPs' is more than noise."""


def size_section(measures: Measures) -> Section:
    costs, study = measures.costs, measures.study
    if not costs:
        return Section("size", "Parameters and FLOPs", [Paragraph(study.absence("pretrain"), kind="missing")])
    rows = []
    length = next(iter(costs.values())).length
    for model, cost in costs.items():
        counts = (cost.parameters.qkv, cost.parameters.attention_block, cost.parameters.model)
        saved_parameters = saved_flops = NONE
        if (reference := costs.get(study.baseline_of(model) or "")) is not None:
            saved_parameters = _share(1 - cost.parameters.model / reference.parameters.model)
            saved_flops = _share(1 - cost.flops_per_token / reference.flops_per_token)
        flops = Cell(rounded(cost.flops_per_token), cost.flops_per_token)
        rows.append([Cell(model), *(Cell(f"{n:,}", n) for n in counts), saved_parameters, flops, saved_flops])
    table = Table(
        name="size",
        caption=f"Parameters, and forward FLOPs a token in rows of {length} tokens, counted on the models themselves",
        columns=(
            "model",
            "q, k, v of a layer",
            "with output projection",
            "whole model",
            "saved",
            "FLOPs a token",
            "FLOPs saved",
        ),
        rows=rows,
    )
    note = (
        "The whole model includes its MLM head. FLOPs are those of matrix products, a multiply-add counted as 2, with "
        "the MLM head on 15 % of the tokens; training costs about three times as much."
    )
    return Section("size", "Parameters and FLOPs", [table, Paragraph(note, kind="note")])


def _share(saved: float) -> Cell:
    return Cell(percent(saved), saved)


def speed_section(measures: Measures) -> Section:
    study = measures.study
    blocks: list[Block] = []
    if study.bench is None:
        blocks.append(Paragraph(study.absence("bench"), kind="missing"))
    else:
        blocks += [_speed_table(measures), Paragraph(_faster_than_flops(measures), timed=True)]
        blocks.append(Paragraph(_how_measured(study.bench), kind="note"))
    if study.pretraining:
        blocks.append(Paragraph(_minutes(study), timed=True))
    return Section("speed", "Speed and memory", blocks)


def _how_measured(bench: Bench) -> str:
    by = "" if bench.size is None else f"Measured by `sharedqkv bench` on models of size {bench.size}. "
    precision = "bf16" if bench.bf16 else "fp32"
    compiled = "compiled" if bench.compile else "not compiled"
    return (
        f"{by}Median over repeats, in which the models took turns, and their range. {bench.rows} rows of "
        f"{bench.length} tokens, {precision}, {compiled}, attention by {bench.attn_implementation}, on {bench.device} "
        f"with {counted(bench.threads, 'CPU thread')}."
    )


def _minutes(study: Study) -> str:
    if study.side_by_side > 1:
        return (
            f"The time that pre-training took is left out: up to {study.side_by_side} runs at once shared a device, "
            "and such times tell nothing about speed."
        )
    minutes = [
        f"{code(model)} {number(mean(run.seconds for run in runs) / 60, 1)}"
        for model, runs in study.pretraining.items()
    ]
    return f"Minutes of pre-training, mean over seeds: {', '.join(minutes)}."


def _speed_table(measures: Measures) -> Table:
    bench = measures.study.bench
    assert bench is not None
    with_forward = any(timing.forward_s for timing in bench.entrants.values())
    rows = []
    for model, timing in bench.entrants.items():
        saving = measures.time_saved.get(model)
        tokens = bench.rows * bench.length / median(timing.train_step_s)
        memory = timing.peak_memory_bytes
        rows.append(
            [
                Cell(model),
                _milliseconds(timing.train_step_s),
                _share(saving.median) if saving else NONE,
                Cell(f"{tokens:,.0f}", tokens),
                *([_milliseconds(timing.forward_s)] if with_forward else []),
                Cell(f"{memory / 2**20:,.0f} MiB", memory) if memory else NONE,
            ]
        )
    return Table(
        name="speed",
        caption=f"Time of a training step{' and of a forward pass' if with_forward else ''}, and memory",
        columns=(
            "model",
            "training step, ms",
            "time saved",
            "tokens a second",
            *(["forward pass, ms"] if with_forward else []),
            "peak memory",
        ),
        rows=rows,
        records=[_timing_record(model, timing) for model, timing in bench.entrants.items()],
        timed=True,
    )


def _milliseconds(seconds: Sequence[float]) -> Cell:
    if not seconds:
        return NONE
    low, middle, high = (number(1000 * value, 1) for value in (min(seconds), median(seconds), max(seconds)))
    return Cell(f"{middle} ({low} to {high})", median(seconds))


def _timing_record(model: str, timing: Timing) -> dict[str, object]:
    return {
        "model": model,
        "training step, s": " ".join(map(str, timing.train_step_s)),
        "forward pass, s": " ".join(map(str, timing.forward_s)),
        "peak memory, bytes": timing.peak_memory_bytes,
    }


def _faster_than_flops(measures: Measures) -> str:
    """A speed-up that arithmetic does not explain is an error until it is explained."""
    costs = measures.costs
    suspects = []
    for model, saving in measures.time_saved.items():
        baseline = measures.study.baseline_of(model)
        if baseline is not None and model in costs and baseline in costs:
            possible = costs[baseline].flops_per_token / costs[model].flops_per_token
            measured = 1 / (1 - saving.median)
            if measured > possible * (1 + _FLOPS_SLACK):
                suspects.append(f"{model} ({number(measured, 2)}× where FLOPs allow {number(possible, 2)}×)")
    if not suspects:
        return "No model is faster than its FLOPs explain."
    return f"Faster than FLOPs explain, so look twice: {', '.join(suspects)}."
