"""Which learning rates were tried, and which was taken."""

import math
from collections.abc import Mapping

from sharedqkv.evidence.learning_rates import best_rate
from sharedqkv.evidence.report.collect import Study
from sharedqkv.evidence.report.document import Block, Cell, Paragraph, Table
from sharedqkv.evidence.report.sections.common import NONE
from sharedqkv.evidence.report.words import number, rounded


def learning_rates(study: Study) -> list[Block]:
    """Nothing for a study without a search."""
    search = study.search
    if search is None:
        return []
    rows, records = [], []
    for model, losses in search.losses.items():
        taken, remark = best_rate(losses), _remark(losses)
        rows.append(
            [
                Cell(model),
                *(_loss(loss) for loss in losses.values()),
                NONE if taken is None else Cell(f"{taken:g}", taken),
                Cell(remark) if remark else NONE,
            ]
        )
        records += [
            {"model": model, "learning rate": rate, "loss": loss, "taken": rate == taken, "remark": remark}
            for rate, loss in losses.items()
        ]
    table = Table(
        name="learning_rates",
        caption=(
            "Learning rates: training loss over the last fifth of a search run of "
            f"{rounded(search.max_tokens)} tokens, nats"
        ),
        columns=("model", *(f"{rate:g}" for rate in search.learning_rates), "taken", "remark"),
        rows=rows,
        records=records,
    )
    note = (
        "A search run is the beginning of the whole run, with the rate held after warm-up. The rate with the lowest "
        "loss is taken; held-out text has no say in it. At the edge: one beyond those that were tried may be better."
    )
    if any(entrant.name not in search.losses for entrant in study.entrants):
        note += f" The search was done with {search.position} positions; the rate found is the variant's with any."
    return [table, Paragraph(note, kind="note")]


def _loss(loss: float | None) -> Cell:
    if loss is None:
        return NONE
    return Cell("broke down" if loss == math.inf else number(loss, 3), loss)


def _remark(losses: Mapping[float, float | None]) -> str:
    if None in losses.values():
        return "not complete"
    taken = best_rate(losses)
    if taken is None:
        return "all broke down"
    return "at the edge" if taken in (min(losses), max(losses)) else ""
