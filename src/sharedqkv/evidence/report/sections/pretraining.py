"""Loss in pre-training: curves and final values; the search for its learning rates."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import mean, stdev

import numpy as np

from sharedqkv.evidence.report.collect import Pretraining, Study
from sharedqkv.evidence.report.document import Block, Cell, Figure, Paragraph, Section, Table
from sharedqkv.evidence.report.figures import Style, draw_losses
from sharedqkv.evidence.report.measures import Measures
from sharedqkv.evidence.report.sections.common import NONE, comparisons, test_record
from sharedqkv.evidence.report.sections.learning_rates import learning_rates
from sharedqkv.evidence.report.words import number, rounded, signed, with_std

_CURVE_POINTS = 80
"""Of a training loss in the figure; what lies between is averaged."""


def pretraining_section(measures: Measures, looks: Mapping[str, Style]) -> Section:
    study = measures.study
    if not study.pretraining:
        missing = Paragraph(study.absence("pretrain"), kind="missing")
        return Section("pretraining", "Pre-training", [missing, *learning_rates(study)])
    entropy = study.corpus.unigram_entropy if study.corpus else None
    blocks: list[Block] = [*_loss_curves(study, entropy, looks), _loss_table(measures, entropy)]
    note = (
        "Loss on held-out text; lower is better. ± is the standard deviation between pre-training seeds. Interval and "
        "p are of the difference, p with Holm's correction."
    )
    if entropy is not None:
        note += " Unigram entropy is the loss of a model that knows only how frequent each token is."
    blocks.append(Paragraph(note, kind="note"))
    if tested := [c for c in measures.losses.values() if c.counts_seeds]:
        blocks.append(
            comparisons("All differences between losses", "loss_comparisons", "Differences in nats", tested, _nats)
        )
    return Section("pretraining", "Pre-training", [*blocks, *learning_rates(study)])


def _loss_curves(study: Study, entropy: float | None, looks: Mapping[str, Style]) -> list[Figure]:
    """One for each kind of positions: they cost more than most variants differ, and many curves hide each other."""
    by_positions: dict[str, dict[str, list[Pretraining]]] = {}
    for entrant in study.entrants:
        if runs := study.pretraining.get(entrant.name):
            by_positions.setdefault(entrant.position_embedding_type, {})[entrant.name] = runs
    several = len(by_positions) > 1
    figures = [
        _loss_figure(f"losses_{positions}" if several else "losses", runs, entropy, looks)
        for positions, runs in by_positions.items()
    ]
    return [figure for figure in figures if figure is not None]


def _loss_figure(
    name: str, pretraining: Mapping[str, Sequence[Pretraining]], entropy: float | None, looks: Mapping[str, Style]
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
        name=name,
        caption="Masked-language-model loss: lines in training, markers on held-out text; means over seeds",
        description=f"Falling curves, one for each model. Final held-out losses: {told}.",
        drawing=draw_losses(name, training, held_out, entropy, looks),
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


def _nats(loss: float) -> str:
    return number(loss, 3)


def _loss_table(measures: Measures, entropy: float | None) -> Table:
    rows, records = [], []
    study = measures.study
    means = {model: mean(run.final_loss for run in runs) for model, runs in study.pretraining.items()}
    for model, runs in study.pretraining.items():
        losses, baseline = [run.final_loss for run in runs], study.baseline_of(model)
        difference = means[model] - means[baseline] if baseline in means else None
        std = stdev(losses) if len(losses) > 1 else None
        c = measures.losses.get((model, baseline)) if baseline else None
        tested = c if c is not None and c.counts_seeds else None
        rows.append(
            [
                Cell(model),
                Cell(with_std(_nats(means[model]), std, 3), means[model]),
                Cell(str(len(losses)), len(losses)),
                Cell(baseline) if baseline else NONE,
                NONE if difference is None else Cell(signed(_nats(difference)), difference),
                Cell(f"{_nats(tested.interval[0])} to {_nats(tested.interval[1])}", tested.interval[0])
                if tested
                else NONE,
                Cell(f"{tested.p_corrected:.2g}", tested.p_corrected) if tested else NONE,
                Cell(rounded(runs[0].tokens), runs[0].tokens),
            ]
        )
        records.append(
            {"model": model, "mean": means[model], "std": std, "seeds": len(losses), "tokens": runs[0].tokens}
            | {"against": baseline}
            | test_record(tested)
            | {"difference": difference}
        )
    footer = [[Cell("unigram entropy"), Cell(_nats(entropy), entropy), *([NONE] * 6)]] if entropy else []
    return Table(
        name="losses",
        caption="Final loss on held-out text, nats a hidden token",
        columns=("model", "loss", "seeds", "against", "difference", "95 % interval", "p", "tokens seen"),
        rows=rows,
        footer=footer,
        records=records,
    )
