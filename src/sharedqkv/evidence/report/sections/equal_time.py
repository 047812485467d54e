"""The loss that a baseline would have in the time that another model takes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean

import numpy as np

from sharedqkv.evidence.report.collect import Study
from sharedqkv.evidence.report.document import Block, Cell, Paragraph, Section, Table
from sharedqkv.evidence.report.measures import Measures, time_saved
from sharedqkv.evidence.report.sections.common import NONE
from sharedqkv.evidence.report.words import code, number, percent, rounded, several, signed

_FEWEST_BUDGETS = 3
_CAUTION = (
    "So this is an interpolation and no run, and nothing is tested. Extrapolated: outside these budgets. Time is that "
    "of training steps, as the section on speed has it, as a share of the baseline's; what else a run does is left out."
)


@dataclass(frozen=True)
class _Line:
    """loss = a + b · ln(tokens), through a baseline's runs of one seed."""

    baseline: str
    seed: int
    a: float
    b: float
    losses: dict[int, float]
    """Of the runs: tokens → loss."""
    shift: float
    """From that seed's loss to the mean over seeds."""

    def at(self, tokens: float) -> float:
        return self.a + self.b * math.log(tokens)

    def covers(self, tokens: float) -> bool:
        return min(self.losses) <= tokens <= max(self.losses)


def equal_time_sections(measures: Measures) -> list[Section]:
    """One, or none where a piece is missing: times of steps, or a baseline trained with enough budgets."""
    study = measures.study
    lines = [line for baseline in study.baselines if (line := _line(study, baseline)) is not None]
    blocks = [block for line in lines for block in _blocks(study, line)]
    return [Section("equal_time", "At equal time", blocks)] if blocks else []


def _blocks(study: Study, line: _Line) -> list[Block]:
    rows = list(_rows(study, line))
    if not rows:
        return []
    slug = next(entrant.slug for entrant in study.entrants if entrant.name == line.baseline)
    table = Table(
        name=f"equal_time_{slug}",
        caption=f"Held-out loss, nats, and that of {line.baseline} after as much time",
        columns=("model", "loss", "time", "baseline's tokens", "baseline's loss", "difference", "remark"),
        rows=rows,
        timed=True,
    )
    return [table, Paragraph(f"{_how_fitted(line)} {_CAUTION}", kind="note")]


def _line(study: Study, baseline: str) -> _Line | None:
    """Of the first seed with enough budgets."""
    own = study.pretraining.get(baseline, [])
    for run in own:
        runs = [run, *(other for other in study.other_budgets.get(baseline, []) if other.seed == run.seed)]
        losses = {each.tokens: each.final_loss for each in sorted(runs, key=lambda each: each.tokens)}
        if len(losses) >= _FEWEST_BUDGETS:
            b, a = np.polyfit(np.log(list(losses)), list(losses.values()), 1).tolist()
            return _Line(baseline, run.seed, a, b, losses, mean(each.final_loss for each in own) - run.final_loss)
    return None


def _rows(study: Study, line: _Line) -> Iterator[list[Cell]]:
    """Of all models with the baseline's kind of positions that were timed beside it."""
    timings = study.bench.entrants if study.bench else {}
    positions = {entrant.name: entrant.position_embedding_type for entrant in study.entrants}
    for model, runs in study.pretraining.items():
        if model == line.baseline or positions[model] != positions[line.baseline]:
            continue
        if model in timings and line.baseline in timings:
            step = 1 - time_saved(timings[model], timings[line.baseline]).median
            tokens = step * runs[0].tokens
            time = tokens / study.pretraining[line.baseline][0].tokens
            yield _row(model, mean(run.final_loss for run in runs), time, tokens, line)


def _row(model: str, loss: float, time: float, tokens: float, line: _Line) -> list[Cell]:
    """`tokens` are those that the baseline sees in the model's time."""
    fitted = line.at(tokens) + line.shift
    return [
        Cell(model),
        Cell(number(loss, 3), loss),
        Cell(percent(time), time),
        Cell(rounded(tokens), tokens),
        Cell(number(fitted, 3), fitted),
        Cell(signed(number(loss - fitted, 3)), loss - fitted),
        NONE if line.covers(tokens) else Cell("extrapolated"),
    ]


def _how_fitted(line: _Line) -> str:
    budgets = several([rounded(tokens) for tokens in line.losses])
    farthest = max(abs(line.at(tokens) - loss) for tokens, loss in line.losses.items())
    return (
        f"{code(line.baseline)} was trained with seed {line.seed} and budgets of {budgets} tokens. Its loss at other "
        f"times is read off {number(line.a, 3)} {'−' if line.b < 0 else '+'} {number(abs(line.b), 3)} · ln(tokens), "
        f"fitted to these runs by least squares (no run is farther from it than {number(farthest, 4)} nats) and moved "
        f"by {signed(number(line.shift, 4))} nats, the difference between its mean over seeds and that seed's loss."
    )
