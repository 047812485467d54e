"""Loss in pre-training: curves and final values."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import mean, stdev

import numpy as np

from sharedqkv.evidence.report.collect import Pretraining
from sharedqkv.evidence.report.document import Block, Cell, Figure, Paragraph, Section, Table
from sharedqkv.evidence.report.figures import Style, draw_losses
from sharedqkv.evidence.report.measures import Measures
from sharedqkv.evidence.report.sections.common import NONE, test_record
from sharedqkv.evidence.report.words import number, rounded, signed, with_std

_CURVE_POINTS = 80
"""Of a training loss in the figure; what lies between is averaged."""


def pretraining_section(measures: Measures, looks: Mapping[str, Style]) -> Section:
    study = measures.study
    if not study.pretraining:
        return Section("pretraining", "Pre-training", [Paragraph(study.absence("pretrain"), kind="missing")])
    entropy = study.corpus.unigram_entropy if study.corpus else None
    blocks: list[Block] = [_loss_table(measures, entropy)]
    if (curves := _loss_curves(study.pretraining, entropy, looks)) is not None:
        blocks.insert(0, curves)
    note = "Loss on held-out text; lower is better. ± is the standard deviation between pre-training seeds."
    if entropy is not None:
        note += " Unigram entropy is the loss of a model that knows only how frequent each token is."
    blocks.append(Paragraph(note, kind="note"))
    return Section("pretraining", "Pre-training", blocks)


def _loss_curves(
    pretraining: Mapping[str, Sequence[Pretraining]], entropy: float | None, looks: Mapping[str, Style]
) -> Figure | None:
    training = {model: _thinned(_mean_curve([run.training for run in runs])) for model, runs in pretraining.items()}
    held_out = {model: _mean_curve([run.held_out for run in runs]) for model, runs in pretraining.items()}
    if not any([*training.values(), *held_out.values()]):
        return None
    told = "; ".join(
        f"{model} {number(mean(run.final_loss for run in runs), 3)}" for model, runs in pretraining.items()
    )
    records = [
        {"model": model, "text": text, "tokens": tokens, "loss": loss}
        for text, curves in (("training", training), ("held-out", held_out))
        for model, curve in curves.items()
        for tokens, loss in curve
    ]
    return Figure(
        name="losses",
        caption="Masked-language-model loss: lines in training, markers on held-out text; means over seeds",
        description=f"Falling curves, one for each model. Final held-out losses: {told}.",
        drawing=draw_losses("losses", training, held_out, entropy, looks),
        records=records,
    )


def _thinned(curve: list[tuple[int, float]]) -> list[tuple[int, float]]:
    bounds = np.linspace(0, len(curve), min(_CURVE_POINTS, len(curve)) + 1).astype(int).tolist()
    parts = [curve[low:high] for low, high in pairwise(bounds)]
    return [(part[-1][0], mean(loss for _, loss in part)) for part in parts]


def _mean_curve(curves: Sequence[Sequence[tuple[int, float]]]) -> list[tuple[int, float]]:
    """Over seeds, where all have a value."""
    by_tokens: dict[int, list[float]] = {}
    for curve in curves:
        for tokens, loss in dict(curve).items():
            by_tokens.setdefault(tokens, []).append(loss)
    return [(tokens, mean(losses)) for tokens, losses in sorted(by_tokens.items()) if len(losses) == len(curves)]


def _loss_table(measures: Measures, entropy: float | None) -> Table:
    rows, records = [], []
    for model, runs in measures.study.pretraining.items():
        losses, c = [run.final_loss for run in runs], measures.losses.get(model)
        std = stdev(losses) if len(losses) > 1 else None
        tested = c is not None and c.units_a > 1
        rows.append(
            [
                Cell(model),
                Cell(with_std(number(mean(losses), 3), std, 3), mean(losses)),
                Cell(str(len(losses)), len(losses)),
                Cell(signed(number(c.difference, 3)), c.difference) if c else NONE,
                Cell(f"{number(c.interval[0], 3)} to {number(c.interval[1], 3)}", c.interval[0])
                if c and tested
                else NONE,
                Cell(f"{c.p_corrected:.2g}", c.p_corrected) if c and tested else NONE,
                Cell(rounded(runs[0].tokens), runs[0].tokens),
            ]
        )
        records.append(
            {"model": model, "mean": mean(losses), "std": std, "seeds": len(losses), "tokens": runs[0].tokens}
            | test_record(c if tested else None)
        )
    footer = [[Cell("unigram entropy"), Cell(number(entropy, 3), entropy), *([NONE] * 5)]] if entropy else []
    return Table(
        name="losses",
        caption="Final loss on held-out text, nats a hidden token",
        columns=("model", "loss", "seeds", "difference", "95 % interval", "p", "tokens seen"),
        rows=rows,
        footer=footer,
        records=records,
    )
