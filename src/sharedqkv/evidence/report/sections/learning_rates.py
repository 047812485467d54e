"""Which learning rates were tried, which was taken, and how whole runs with the others ended."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

from sharedqkv.evidence.comparison import Comparison, compare_scores
from sharedqkv.evidence.learning_rates import best_rate
from sharedqkv.evidence.report.collect import RateCheck, Study
from sharedqkv.evidence.report.document import Block, Cell, Paragraph, Table
from sharedqkv.evidence.report.measures import loss_scores
from sharedqkv.evidence.report.sections.common import NONE
from sharedqkv.evidence.report.words import code, number, p_value, rounded, several, signed, with_std


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
    sentences = [*_lower_ones(checks), *_with_another_rate(study)]
    return [table, *map(Paragraph, sentences), Paragraph(note, kind="note")]


def _lower_ones(checks: Sequence[RateCheck]) -> Iterator[str]:
    """A sentence for each model and rate that end below the rate taken, with the seeds in which they do."""
    taken = {(check.model, check.seed): check for check in checks if check.taken}
    lower: dict[tuple[str, float, float], list[str]] = {}
    for check in checks:
        own = taken.get((check.model, check.seed))
        if own is None or own.training_loss is None or check.training_loss is None:
            continue
        if check.training_loss < own.training_loss:
            told = f"{check.seed} ({_loss(check.training_loss).text} against {_loss(own.training_loss).text})"
            lower.setdefault((check.model, check.learning_rate, own.learning_rate), []).append(told)
    for (model, rate, taken_rate), seeds in lower.items():
        yield (
            f"{code(model)}: training loss is lower with {rate:g} than with the rate taken, {taken_rate:g}, in seed"
            f"{'s' if len(seeds) > 1 else ''} {several(seeds)}."
        )


def _with_another_rate(study: Study) -> Iterator[str]:
    """What a rate that was not taken would have made of the losses, where it was run with every seed."""
    losses = {model: {run.seed: run.final_loss for run in runs} for model, runs in study.pretraining.items()}
    others: dict[tuple[str, float], dict[int, float]] = {}
    for check in study.rate_checks:
        if not check.taken and check.held_out_loss is not None:
            others.setdefault((check.model, check.learning_rate), {})[check.seed] = check.held_out_loss
    for (model, rate), by_seed in others.items():
        if len(by_seed) < 2 or not by_seed.keys() >= losses.get(model, {}).keys():
            continue
        mine = loss_scores(f"{model} with {rate:g}", by_seed)
        rivals = [study.baseline_of(model), study.rival_of(model, "narrow")]
        compared = [
            compare_scores(mine, loss_scores(rival, losses[rival]), paired=False)
            for rival in dict.fromkeys(rivals)
            if rival is not None and len(losses.get(rival, {})) > 1
        ]
        mean = with_std(number(mine.scores_R.mean(), 3), float(mine.scores_R.std(ddof=1)), 3)
        told = "".join(f"; {_difference(c)}" for c in compared)
        yield f"{code(model)} with {rate:g} ends at {mean} nats on held-out text, {len(by_seed)} seeds{told}."


def _difference(c: Comparison) -> str:
    low, high = (number(bound, 3) for bound in c.interval)
    test = f", {p_value(c.p)}, not corrected" if c.could_be_called else ""
    return f"{signed(number(c.difference, 3))} against {code(c.model_b)} (95 % interval {low} to {high}{test})"
