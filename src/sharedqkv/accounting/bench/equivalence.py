"""Entrants that should compute the same must do so, or their speeds are not worth printing."""

import math
from dataclasses import dataclass

from torch import Tensor

from sharedqkv.accounting.bench.entrants import Entrant
from sharedqkv.accounting.bench.passes import HIDDEN_STATES, LOSS, Results

TOLERANCES = {
    "float32": {LOSS: 1e-5, HIDDEN_STATES: 1e-4, "gradient": 1e-3},
    "bfloat16": {LOSS: 2e-3, HIDDEN_STATES: 0.02, "gradient": 0.1},
}
"""Norm of a difference over the norm of what is expected. Two right backends are apart by about a fifth of this."""
SMALL = 1e-4
"""A gradient below this share of the whole gradient is measured by this share: a few, like that of standard's key
bias, are zero but for rounding."""


@dataclass(frozen=True)
class Agreement:
    """Between two entrants, by the result that is nearest to its tolerance or farthest beyond."""

    entrant: str
    same_as: str
    result: str
    difference: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.difference <= self.tolerance  # not so for NaN


def agreement(entrant: Entrant, found: Results, expected: Results, dtype: str) -> Agreement:
    """Of a peer only loss and hidden states are looked at: its gradients are rounded in other places."""
    assert entrant.same_as is not None
    values = [name for name in expected if name in (LOSS, HIDDEN_STATES)]
    gradients = [] if entrant.is_peer else [name for name in expected if name not in values]
    whole_gradient = math.sqrt(sum(_norm(expected[name]) ** 2 for name in gradients))
    agreements = []
    for name in (*values, *gradients):
        size = max(_norm(expected[name]), SMALL * whole_gradient if name in gradients else 0.0)
        off = _norm(found[name].double() - expected[name].double())
        tolerance = TOLERANCES[dtype]["gradient" if name in gradients else name]
        agreements.append(Agreement(entrant.name, entrant.same_as, name, off / size if off else 0.0, tolerance))
    return max(agreements, key=lambda found: math.inf if math.isnan(found.difference) else _strain(found))


def require(agreement: Agreement) -> None:
    if not agreement.holds:
        raise ValueError(
            f"{agreement.entrant} does not compute what {agreement.same_as} does: {agreement.result} differs by "
            f"{agreement.difference:.1e} of its norm, and {agreement.tolerance:g} is allowed. No speed is worth "
            f"printing: mend the backend, or leave {agreement.entrant} out"
        )


def _norm(tensor: Tensor) -> float:
    return float(tensor.double().norm())


def _strain(agreement: Agreement) -> float:
    return agreement.difference / agreement.tolerance
