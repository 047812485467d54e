"""Medians, quartiles, and ratios with an interval, from the seconds of every round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 10_000


@dataclass(frozen=True)
class Summary:
    median_s: float
    quartiles_s: tuple[float, float]
    tokens_per_s: float
    speed: float
    """The first entrant's median over this one's: above 1 is faster than the first."""
    speed_interval: tuple[float, float] | None
    """95 %, by resampling rounds; none where there is only one."""


def summarise(seconds: Mapping[str, Sequence[float]], tokens: int) -> dict[str, Summary]:
    """Of rounds in which all took part; entrants in their order, the first is the one to compare with."""
    first = np.asarray(next(iter(seconds.values())))
    return {name: _summary(np.asarray(own), first, tokens) for name, own in seconds.items()}


def _summary(own: np.ndarray, first: np.ndarray, tokens: int) -> Summary:
    median = float(np.median(own))
    low, high = np.percentile(own, [25, 75])
    return Summary(
        median_s=median,
        quartiles_s=(float(low), float(high)),
        tokens_per_s=tokens / median,
        speed=float(np.median(first) / median),
        speed_interval=_interval(own, first) if len(own) > 1 else None,
    )


def _interval(own: np.ndarray, first: np.ndarray) -> tuple[float, float]:
    """Rounds are drawn for both at once: what slows a round slows both."""
    drawn = np.random.default_rng(0).integers(len(own), size=(DRAWS, len(own)))
    low, high = np.percentile(np.median(first[drawn], axis=1) / np.median(own[drawn], axis=1), [2.5, 97.5])
    return float(low), float(high)
