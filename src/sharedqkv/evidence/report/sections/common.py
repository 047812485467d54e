"""What several sections share: how a comparison shows in a table."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from sharedqkv.evidence.comparison import Comparison
from sharedqkv.evidence.report.document import Cell, Details, Paragraph, Table
from sharedqkv.evidence.report.words import signed

NONE = Cell("–")


def mark_of(c: Comparison | None) -> Literal["", "better", "worse"]:
    if c is None or not c.called:
        return ""
    return "better" if c.difference > 0 else "worse"


def legend(baseline: str, family: str) -> str:
    return f"▲ and ▼: better or worse than {baseline} by the permutation test, with Holm's correction over {family}."


def test_record(c: Comparison | None) -> dict[str, Any]:
    return {
        "difference": c and c.difference,
        "interval low": c and c.interval[0],
        "interval high": c and c.interval[1],
        "p": c and c.p,
        "p corrected": c and c.p_corrected,
        "smallest p corrected": c and c.smallest_p_corrected,
    }


def comparisons(
    title: str, name: str, caption: str, found: Sequence[Comparison], told: Callable[[float], str]
) -> Details:
    """What each rests on and what it could have found; `told` writes a difference."""
    rows = [
        [
            Cell(f"{c.task}: {c.model_a} against {c.model_b}"),
            Cell(f"{c.units_a} and {c.units_b}", c.units_a),
            Cell(signed(told(c.difference)), c.difference),
            Cell(f"{told(c.interval[0])} to {told(c.interval[1])}", c.interval[0]),
            Cell(f"{c.p:.2g}", c.p),
            Cell(str(c.family), c.family),
            Cell(f"{c.p_corrected:.2g}", c.p_corrected),
            Cell(f"{c.smallest_p_corrected:.2g}", c.smallest_p_corrected),
            NONE if c.smallest_difference is None else Cell(told(c.smallest_difference), c.smallest_difference),
        ]
        for c in found
    ]
    table = Table(
        name=name,
        caption=caption,
        columns=(
            "comparison",
            "seeds",
            "difference",
            "95 % interval",
            "p",
            "family",
            "p corrected",
            "smallest possible",
            "would be found",
        ),
        rows=rows,
        records=[
            {"task": c.task, "model": c.model_a, "against": c.model_b, "unit": c.unit, "units": c.units_a}
            | test_record(c)
            | {"family": c.family, "would be found": c.smallest_difference, "Hedges' g": c.effect_size}
            for c in found
        ],
    )
    note = (
        "Holm's correction goes over a family, the comparisons that answer one question. Smallest possible is the "
        "least corrected p that so few seeds can reach; would be found is the difference that the test calls 4 times "
        "in 5."
    )
    if not all(c.counts_seeds for c in found):
        note += " With a single seed of each the interval is over examples only, and seeds may differ by more."
    return Details(title, [table, Paragraph(note, kind="note")])
