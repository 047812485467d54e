"""What several sections share: how a comparison shows in a table."""

from typing import Any, Literal

from sharedqkv.evidence.comparison import Comparison
from sharedqkv.evidence.report.document import Cell

NONE = Cell("–")


def mark_of(c: Comparison | None) -> Literal["", "better", "worse"]:
    if c is None or not c.called:
        return ""
    return "better" if c.difference > 0 else "worse"


def legend(baseline: str, family: str) -> str:
    return f"▲ and ▼: better or worse than `{baseline}` by the permutation test, with Holm's correction over {family}."


def test_record(c: Comparison | None) -> dict[str, Any]:
    return {
        "difference": c and c.difference,
        "interval low": c and c.interval[0],
        "interval high": c and c.interval[1],
        "p": c and c.p,
        "p corrected": c and c.p_corrected,
        "smallest p corrected": c and c.smallest_p_corrected,
    }
