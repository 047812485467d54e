"""Which learning rates were tried, which was taken, and how whole runs with the others ended."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

from sharedqkv.evidence.learning_rates import best_rate
from sharedqkv.evidence.report.collect import RateCheck, Study
from sharedqkv.evidence.report.document import Block, Cell, Paragraph, Table
from sharedqkv.evidence.report.sections.common import NONE
from sharedqkv.evidence.report.words import code, number, rounded


def learning_rates(study: Study) -> list[Block]:
    """Nothing for a study without a search and without runs that check its outcome."""
    return [*_search(study), *_checks(study)]


def _search(study: Study) -> list[Block]:
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


def _checks(study: Study) -> list[Block]:
    checks = study.rate_checks
    if not checks:
        return []
    table = Table(
        name="learning_rate_checks",
        caption="Whole runs with the rate taken and with others: training loss over the last fifth, and held-out loss",
        columns=("model", "seed", "learning rate", "training loss", "held-out loss", "taken"),
        rows=[
            [
                Cell(check.model),
                Cell(str(check.seed), check.seed),
                Cell(f"{check.learning_rate:g}", check.learning_rate),
                _loss(check.training_loss),
                _loss(check.held_out_loss),
                Cell("taken") if check.taken else NONE,
            ]
            for check in checks
        ],
        records=[dataclasses.asdict(check) for check in checks],
    )
    note = (
        "The training loss decides whether another rate would have been the one to take; held-out text has no say in "
        "it. All other figures of this report are of the rates taken."
    )
    return [table, *(Paragraph(sentence) for sentence in _lower_ones(checks)), Paragraph(note, kind="note")]


def _lower_ones(checks: Sequence[RateCheck]) -> Iterator[str]:
    """A sentence for each run with the rate taken that ends above one with another rate."""
    for taken in (check for check in checks if check.taken):
        own = [check for check in checks if (check.model, check.seed) == (taken.model, taken.seed)]
        losses = {check.learning_rate: check.training_loss for check in own if check.training_loss is not None}
        best = min(losses, key=lambda rate: losses[rate], default=None)
        if best is not None and taken.training_loss is not None and losses[best] < taken.training_loss:
            yield (
                f"{code(taken.model)}, seed {taken.seed}: training loss is lower with {best:g} "
                f"({_loss(losses[best]).text}) than with the rate taken, {taken.learning_rate:g} "
                f"({_loss(taken.training_loss).text})."
            )
