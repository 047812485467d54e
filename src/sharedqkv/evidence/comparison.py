"""Is one model better than another on a task? See docs/statistics.md for what is tested and why.

The unit of the test is the pre-training seed where both models have several, otherwise the fine-tuning seed; the
verdict then speaks of the two checkpoints only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sharedqkv.evidence.resampling import hierarchical_bootstrap
from sharedqkv.evidence.runs import RunScores, TaskRuns, score_runs
from sharedqkv.evidence.statistics import (
    hedges_g,
    holm,
    permutation_p,
    smallest_effect,
    smallest_p,
    t_interval,
)
from sharedqkv.tasks.metrics import Metric

PRETRAINING = "pre-training seed"
FINETUNING = "fine-tuning seed"


@dataclass(frozen=True)
class Comparison:
    """A against B on one task. Scores are fractions; differences are A − B."""

    task: str
    model_a: str
    model_b: str
    unit: str
    """What the test permutes: PRETRAINING or FINETUNING."""
    paired: bool
    units_a: int
    units_b: int
    runs_a: int
    runs_b: int
    examples: int
    mean_a: float
    mean_b: float
    std_a: float | None
    """Between units; None with a single one."""
    std_b: float | None
    difference: float
    interval: tuple[float, float]
    """Of the difference, at level 1 − alpha, counting units and examples as drawn from many."""
    bootstrap_interval: tuple[float, float]
    """The same by the hierarchical bootstrap: no normal noise assumed, but too narrow with few units."""
    effect_size: float | None
    """Hedges' g: the difference in standard deviations of the units."""
    noise: float | None
    """Standard deviation that `smallest_difference` rests on: of the pairs' differences, or pooled over units."""
    alpha: float
    p: float
    smallest_p: float
    smallest_difference: float | None
    """Found 4 times in 5 at this level; None where no difference can be called, or with a single unit."""
    family: int = 1
    """Over how many comparisons `p_corrected` is corrected."""
    p_corrected: float = 1.0
    smallest_p_corrected: float = 1.0

    @property
    def counts_seeds(self) -> bool:
        """Whether the interval does; with a single run of each model it is one over examples."""
        return self.units_a > 1

    @property
    def called(self) -> bool:
        """Whether a difference is claimed."""
        return self.p_corrected <= self.alpha

    @property
    def could_be_called(self) -> bool:
        """Whether any result of this design could have been."""
        return self.smallest_p_corrected <= self.alpha


def compare(
    a: TaskRuns,
    b: TaskRuns,
    metrics: Sequence[Metric],
    paired: bool | None = None,
    alpha: float = 0.05,
    draws: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Compare two models on a task; several metrics are averaged, as GLUE does.

    By default units are paired when both models have the same seeds. Whoever sets `paired` decides before looking.
    """
    scores_a, scores_b = score_runs([a, b], metrics, draws, seed)
    return compare_scores(scores_a, scores_b, paired, alpha, seed)


def compare_scores(
    a: RunScores, b: RunScores, paired: bool | None = None, alpha: float = 0.05, seed: int = 0
) -> Comparison:
    """`compare` from scores, for averages over tasks."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha {alpha} must lie between 0 and 1")
    unit, units_a, units_b = _units(a, b)
    same_seeds = list(units_a) == list(units_b)
    if paired and not same_seeds:
        raise ValueError(
            f"{a.task}: cannot pair {unit}s {list(units_a)} of {a.model} with {list(units_b)} of {b.model}; "
            "use the same seeds for both, or paired=False"
        )
    paired = same_seeds if paired is None else paired
    means_a, means_b = _unit_means(a.scores_R, units_a), _unit_means(b.scores_R, units_b)
    draws_a, draws_b = _unit_means(a.draws_RD, units_a), _unit_means(b.draws_RD, units_b)
    groups = [(means_a - means_b, draws_a - draws_b)] if paired else [(means_a, draws_a), (means_b, draws_b)]
    difference = float(means_a.mean() - means_b.mean())
    variances = _variance_parts(groups, draws_a.mean(axis=0) - draws_b.mean(axis=0), a.examples)
    bootstrap = hierarchical_bootstrap(
        [a.draws_RD[rows] for rows in units_a.values()], [b.draws_RD[rows] for rows in units_b.values()], paired, seed
    )
    low, high = np.quantile(bootstrap, [alpha / 2, 1 - alpha / 2])
    comparison = Comparison(
        task=a.task,
        model_a=a.model,
        model_b=b.model,
        unit=unit,
        paired=paired,
        units_a=len(units_a),
        units_b=len(units_b),
        runs_a=len(a.seeds),
        runs_b=len(b.seeds),
        examples=a.examples,
        mean_a=float(means_a.mean()),
        mean_b=float(means_b.mean()),
        std_a=_std(means_a),
        std_b=_std(means_b),
        difference=difference,
        interval=t_interval(difference, variances, 1 - alpha),
        bootstrap_interval=(float(low), float(high)),
        effect_size=hedges_g(means_a, means_b),
        noise=_noise(groups),
        alpha=alpha,
        p=permutation_p(means_a, means_b, paired, seed),
        smallest_p=smallest_p(len(units_a), len(units_b), paired),
        smallest_difference=None,
    )
    return correct_for_family([comparison])[0]


def interval_of_mean(scores: RunScores, alpha: float = 0.05) -> tuple[float, float]:
    """Of a model's mean score, counting its seeds and the examples as drawn from many."""
    _, units, _ = _units(scores, scores)
    means, draws = _unit_means(scores.scores_R, units), _unit_means(scores.draws_RD, units)
    variances = _variance_parts([(means, draws)], draws.mean(axis=0), scores.examples)
    return t_interval(float(means.mean()), variances, 1 - alpha)


def correct_for_family(comparisons: Sequence[Comparison], awaited: int = 0) -> list[Comparison]:
    """The comparisons (several tasks, say) with Holm's correction over all of them, and over those still awaited.

    The smallest difference is the one found when no other comparison is called, at alpha divided by their number.
    """
    family = len(comparisons) + awaited
    corrected = holm([comparison.p for comparison in comparisons] + [1.0] * awaited)
    smallest = holm([comparison.smallest_p for comparison in comparisons] + [1.0] * awaited)
    return [
        replace(
            comparison,
            family=family,
            p_corrected=corrected[index],
            smallest_p_corrected=smallest[index],
            smallest_difference=_smallest_difference(comparison, comparison.alpha / family),
        )
        for index, comparison in enumerate(comparisons)
    ]


def _units(a: RunScores, b: RunScores) -> tuple[str, dict[int, list[int]], dict[int, list[int]]]:
    """The unit's name and, for each model, seed → rows of its runs."""
    for level, name in enumerate((PRETRAINING, FINETUNING)):
        units_a, units_b = _rows_by_seed(a, level), _rows_by_seed(b, level)
        if (len(units_a) == 1) != (len(units_b) == 1):
            raise ValueError(
                f"{a.task}: {a.model} has {len(units_a)} and {b.model} has {len(units_b)} {name}s; from a single one "
                "the spread is unknown: give both several, or compare one with one"
            )
        if len(units_a) > 1:
            break
    return name, units_a, units_b


def _rows_by_seed(runs: RunScores, level: int) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = {}
    for row, seeds in enumerate(runs.seeds):
        rows.setdefault(seeds[level], []).append(row)
    return rows


def _unit_means(values: np.ndarray, units: dict[int, list[int]]) -> np.ndarray:
    return np.stack([values[rows].mean(axis=0) for rows in units.values()])


def _std(values: np.ndarray) -> float | None:
    return float(values.std(ddof=1)) if len(values) > 1 else None


def _variance_parts(
    groups: list[tuple[np.ndarray, np.ndarray]], draws_D: np.ndarray, examples: int
) -> list[tuple[float, float]]:
    """Variance of the difference of means from each group of units, and from the examples.

    That runs err on different examples shows in the spread between units already, so it is taken out of the
    examples' part: what is left there is the same for all units.
    """
    parts = []
    from_examples = draws_D.var(ddof=1)
    for means_U, draws_UD in groups:
        if len(means_U) > 1:
            parts.append((means_U.var(ddof=1) / len(means_U), len(means_U) - 1))
            from_examples -= (draws_UD - means_U[:, None]).var(axis=0, ddof=1).mean() / len(means_U)
    return [*parts, (max(0.0, from_examples), max(1, examples - 1))]


def _noise(groups: list[tuple[np.ndarray, np.ndarray]]) -> float | None:
    """Standard deviation between units, pooled over the groups."""
    freedom = sum(len(means) - 1 for means, _ in groups)
    if not freedom:
        return None
    return float(np.sqrt(sum(((means - means.mean()) ** 2).sum() for means, _ in groups) / freedom))


def _smallest_difference(comparison: Comparison, alpha: float) -> float | None:
    effect = smallest_effect(comparison.units_a, comparison.units_b, comparison.paired, alpha)
    return None if effect is None or comparison.noise is None else effect * comparison.noise


def verdict(comparison: Comparison) -> str:
    """The comparison in words: who wins, by how much, how sure, on what it rests and what it could have found."""
    c = comparison
    sentences = [f"{c.task}: {_headline(c)}", _figures(c)]
    if c.counts_seeds:
        sentences.append(_test(c))
    if c.called and c.interval[0] <= 0 <= c.interval[1]:
        sentences.append("The interval includes 0: on other examples of the task the difference may vanish.")
    if c.unit == FINETUNING:
        sentences.append("With one pre-training seed each, this speaks of these two checkpoints, not of the variants.")
    return " ".join(sentences)


def _headline(c: Comparison) -> str:
    names = (c.model_a, c.model_b) if c.difference > 0 else (c.model_b, c.model_a)
    ahead, behind = (f"this checkpoint of {name}" if c.unit == FINETUNING else name for name in names)
    points = f"{_points(abs(c.difference))} points"
    if c.called:
        return f"{ahead} beats {behind} by {points}."
    if not c.counts_seeds:
        return "no verdict: with one run of each model the spread between seeds is unknown."
    if not c.could_be_called:
        return (
            f"no verdict: with {_design(c)} no result could have been significant at {c.alpha:g}"
            f"{over_family(c)}, since p cannot fall below {c.smallest_p_corrected:.2g}."
        )
    if c.difference == 0:
        return f"no difference between {ahead} and {behind}."
    return f"no difference shown; {ahead} is {points} ahead of {behind}, which may be chance."


def _figures(c: Comparison) -> str:
    scores = [
        f"{model} {_points(mean)}" + (f" ± {_points(std)}" if std is not None else "")
        for model, mean, std in ((c.model_a, c.mean_a, c.std_a), (c.model_b, c.mean_b, c.std_b))
    ]
    counted = "seeds and examples" if c.counts_seeds else "examples only"
    effect = f"; Hedges' g {c.effect_size:.2f}" if c.effect_size is not None else ""
    return (
        f"{' against '.join(scores)} on {c.examples:,} examples: {_points(c.difference)} points, {1 - c.alpha:.0%} "
        f"interval {_points(c.interval[0])} to {_points(c.interval[1])} ({counted}){effect}."
    )


def _test(c: Comparison) -> str:
    corrected = f", {c.p_corrected:.2g} with Holm's correction over {c.family} comparisons" if c.family > 1 else ""
    return (
        f"Permutation test on {_design(c)} ({c.runs_a} and {c.runs_b} fine-tuned models): p = {c.p:.2g}{corrected}; "
        f"the smallest p it can reach is {c.smallest_p:.2g}, and {reach(c)}."
    )


def reach(c: Comparison) -> str:
    """What the test could have found."""
    if c.smallest_difference is not None:
        return f"a difference of {_points(c.smallest_difference)} points would have been found 4 times in 5"
    if c.could_be_called:
        return "a difference could be called only after that of another comparison"
    return "no difference, however large, could have been found"


def _design(c: Comparison) -> str:
    return f"{c.units_a} pairs of {c.unit}s" if c.paired else f"{c.units_a} and {c.units_b} {c.unit}s"


def over_family(c: Comparison) -> str:
    return f" over {c.family} comparisons" if c.family > 1 else ""


def _points(fraction: float) -> str:
    return f"{100 * fraction:.2f}"
