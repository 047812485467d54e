"""Where each model looks in the study's sample sentence."""

import numpy as np

from sharedqkv.evidence.report.collect import Maps
from sharedqkv.evidence.report.document import Block, Cell, Figure, Paragraph, Section, Table
from sharedqkv.evidence.report.figures import draw_maps
from sharedqkv.evidence.report.measures import Measures
from sharedqkv.evidence.report.words import code, percent


def attention_section(measures: Measures) -> Section:
    maps, study = measures.study.maps, measures.study
    if maps is None or not maps.entrants:
        return Section("attention", "Attention maps", [Paragraph(study.absence("maps"), kind="missing")])
    blocks: list[Block] = [
        Paragraph(
            f"“{maps.sentence}”: weights averaged over heads, of the first pre-training seed. A row is the token "
            "that looks, a column the token that is looked at; darker is more."
        )
    ]
    slugs = {entrant.name: entrant.slug for entrant in study.entrants}
    blocks += [_figure(model, slugs[model], maps) for model in maps.entrants]
    blocks += [
        _table(maps),
        Paragraph(
            "Means over layers and tokens. Neighbours are the tokens right before and after. Not returned is the "
            "share of attention from one token to another that the other does not give back.",
            kind="note",
        ),
    ]
    return Section("attention", "Attention maps", blocks)


def _figure(model: str, slug: str, maps: Maps) -> Figure:
    layers = maps.entrants[model]
    shown = sorted({0, len(layers) - 1})
    favourites = "; ".join(f"layer {layer + 1}: {_most_seen(maps.tokens, layers[layer])}" for layer in shown)
    return Figure(
        name=f"attention_{slug}",
        caption=f"{code(model)}: first and last layer" if len(shown) > 1 else code(model),
        description=f"Attention of {model}. The tokens that get most of it: {favourites}.",
        drawing=draw_maps(f"attention_{slug}", maps.tokens, layers, shown),
        half=True,
        records=[
            {"layer": layer + 1, "from": source, "to": target, "weight": float(layers[layer, row, column])}
            for layer in range(len(layers))
            for row, source in enumerate(maps.tokens)
            for column, target in enumerate(maps.tokens)
        ],
    )


def _most_seen(tokens: list[str], weights_LL: np.ndarray) -> str:
    received = weights_LL.mean(axis=0)
    best = np.argsort(-received, kind="stable")[:2]
    return ", ".join(f"{tokens[index]} {percent(float(received[index]))}" for index in best)


def _table(maps: Maps) -> Table:
    special = np.array([token.startswith("[") and token.endswith("]") for token in maps.tokens])
    rows = []
    for model, layers_NLL in maps.entrants.items():
        itself = np.trace(layers_NLL, axis1=1, axis2=2).mean() / len(maps.tokens)
        beside = sum(np.trace(layers_NLL, offset, axis1=1, axis2=2) for offset in (-1, 1)).mean() / len(maps.tokens)
        to_special = layers_NLL[:, :, special].sum(axis=2).mean()
        one_sided = np.clip(layers_NLL - layers_NLL.swapaxes(1, 2), 0, None).sum(axis=(1, 2)).mean() / len(maps.tokens)
        shares = (float(share) for share in (itself, beside, to_special, one_sided))
        rows.append([Cell(model), *(Cell(percent(share), share) for share in shares)])
    return Table(
        name="attention",
        caption="Where attention goes in this sentence",
        columns=("model", "to itself", "to neighbours", "to special tokens", "not returned"),
        rows=rows,
    )
