"""Simulated studies: how often is a difference called where there is none, and found where there is one?

`python tests/unit/evidence/test_calibration.py` prints the table of docs/statistics.md from more trials.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from sharedqkv.evidence.comparison import compare, verdict
from sharedqkv.evidence.resampling import mean_score
from sharedqkv.evidence.runs import Predictions, TaskRuns
from sharedqkv.evidence.statistics import permutation_p

EASE, SPREAD_OF_EASE = 1.0, 2.0


@dataclass(frozen=True)
class Study:
    """Two models whose runs answer an example rightly when its ease plus the noise of their seeds is above 0."""

    pretrainings: int = 1
    finetunings: int = 1
    paired: bool = False
    examples: int = 200
    seed_noise: float = 0.2
    """Of each pre-training and each fine-tuning seed, the same for all examples."""
    example_noise: float = 0.5
    """Of each pre-training and each fine-tuning seed, another for every example."""
    model_noise: float = 0.0
    """Of each model, another for every example: models that are good at different things."""
    advantage: float = 0.0
    """Added to the ease of all examples for model A."""
    same_checkpoint: bool = False

    def true_difference(self) -> float:
        per_level = self.seed_noise**2 + self.example_noise**2
        scale = math.sqrt(SPREAD_OF_EASE**2 + self.model_noise**2 + 2 * per_level)
        return stats.norm.cdf((EASE + self.advantage) / scale) - stats.norm.cdf(EASE / scale)

    def run(self, rng):
        ease = EASE + SPREAD_OF_EASE * rng.normal(size=self.examples)
        checkpoint = self._noise(rng) if self.same_checkpoint else None
        models = [
            self._model(rng, name, ease + advantage + self.model_noise * rng.normal(size=self.examples), checkpoint)
            for name, advantage in (("a", self.advantage), ("b", 0.0))
        ]
        return compare(*models, [mean_score], paired=self.paired, draws=200)

    def _model(self, rng, name, ease, checkpoint):
        runs = {}
        for pretraining in range(self.pretrainings):
            pretrained = ease + (self._noise(rng) if checkpoint is None else checkpoint)
            answers = [(pretrained + self._noise(rng) > 0).astype(int) for _ in range(self.finetunings)]
            ids, labels = np.arange(self.examples), np.ones(self.examples, dtype=int)
            runs[pretraining] = {seed: Predictions(ids, labels, right) for seed, right in enumerate(answers)}
        return TaskRuns(name, "simulated", runs)

    def _noise(self, rng):
        return self.seed_noise * rng.normal() + self.example_noise * rng.normal(size=self.examples)


def repeat(study, trials, seed=0):
    rng = np.random.default_rng(seed)
    return [study.run(rng) for _ in range(trials)]


def share(flags):
    return float(np.mean(list(flags)))


def called(comparisons):
    return share(comparison.called for comparison in comparisons)


def covered(comparisons, difference, bootstrap=False):
    intervals = [c.bootstrap_interval if bootstrap else c.interval for c in comparisons]
    return share(low <= difference <= high for low, high in intervals)


def chance(expected, trials):
    """How far a rate may be off by chance, once in some thousand runs of the test."""
    return 3.5 * math.sqrt(expected * (1 - expected) / trials)


NULLS = {
    "pre-training seeds, 8 pairs": Study(pretrainings=8, finetunings=2, paired=True),
    "pre-training seeds, 5 and 5": Study(pretrainings=5, finetunings=3),
    "fine-tuning seeds of one checkpoint, 8 pairs": Study(finetunings=8, paired=True, same_checkpoint=True),
    "fine-tuning seeds of one checkpoint, 5 and 5": Study(finetunings=5, same_checkpoint=True),
}
TRIALS = 600


@pytest.mark.parametrize("study", NULLS.values(), ids=NULLS)
def test_without_a_difference_one_is_called_5_times_in_100(study):
    """12 of 256 sign flips and 12 of 252 splits are the most extreme 5 %: both tests reach 4.7 %."""
    comparisons = repeat(study, TRIALS)
    assert called(comparisons) == pytest.approx(0.047, abs=chance(0.047, TRIALS))
    assert covered(comparisons, 0.0) == pytest.approx(0.95, abs=chance(0.95, TRIALS) + 0.015)


def test_fine_tuning_seeds_know_nothing_of_other_checkpoints():
    """Two checkpoints of one variant: their difference is real and often called, so the words must not go further."""
    comparisons = repeat(Study(finetunings=8, paired=True), 200)
    assert called(comparisons) > 0.2
    assert all("these two checkpoints, not of the variants" in verdict(comparison) for comparison in comparisons)


def test_a_real_difference_is_found_and_measured():
    study = Study(pretrainings=5, finetunings=3, advantage=0.7)
    comparisons = repeat(study, TRIALS)
    differences = [comparison.difference for comparison in comparisons]
    assert np.mean(differences) == pytest.approx(study.true_difference(), abs=4 * np.std(differences) / TRIALS**0.5)
    assert covered(comparisons, study.true_difference()) == pytest.approx(0.95, abs=chance(0.95, TRIALS) + 0.015)
    assert called(comparisons) > 0.9
    assert all("a beats b" in verdict(c) for c in comparisons if c.called)


def test_the_smallest_difference_is_found_4_times_in_5():
    null = Study(pretrainings=6, finetunings=2, paired=True, example_noise=0.3, examples=400)
    typical = np.sqrt(np.mean([c.smallest_difference**2 for c in repeat(null, 300)]))
    advantage = brentq(lambda value: replace(null, advantage=value).true_difference() - typical, 0, 5)
    study = replace(null, advantage=advantage)
    assert called(repeat(study, TRIALS)) == pytest.approx(0.8, abs=chance(0.8, TRIALS) + 0.03)


@pytest.mark.parametrize("pretrainings", [2, 3])
def test_with_few_seeds_the_plain_bootstrap_is_too_narrow_and_the_interval_is_not(pretrainings):
    study = Study(pretrainings=pretrainings, finetunings=1, seed_noise=0.4)
    comparisons = repeat(study, TRIALS)
    assert covered(comparisons, 0.0, bootstrap=True) < 0.9
    assert covered(comparisons, 0.0) > 0.95 - chance(0.95, TRIALS) - 0.015


def test_the_interval_counts_the_examples_too():
    """Models good at different things differ on any one set of examples, though not on all there are."""
    study = Study(pretrainings=4, finetunings=2, seed_noise=0.1, model_noise=1.0)
    comparisons = repeat(study, TRIALS)
    assert covered(comparisons, 0.0) == pytest.approx(0.95, abs=chance(0.95, TRIALS) + 0.015)
    assert called(comparisons) > 2 / 70 + chance(2 / 70, TRIALS), "the test speaks of these examples only"


def false_calls(trials, correlation=0.0, ratio=1.0):
    """Of the unpaired test on 5 and 5 units that are correlated in pairs, or unlike in standard deviation."""
    rng = np.random.default_rng(0)
    common, a, b = rng.normal(size=(3, trials, 5))
    a = math.sqrt(correlation) * common + math.sqrt(1 - correlation) * a
    b = math.sqrt(correlation) * common + math.sqrt(1 - correlation) * b
    return share(permutation_p(x, ratio * y, paired=False) <= 0.05 for x, y in zip(a, b, strict=True))


def test_pairs_may_be_treated_as_unpaired():
    assert false_calls(TRIALS) == pytest.approx(0.047, abs=chance(0.047, TRIALS))
    assert false_calls(TRIALS, correlation=0.6) < 0.03


def print_table(trials=2000):
    studies = {
        **NULLS,
        "fine-tuning seeds of two checkpoints, 8 pairs": Study(finetunings=8, paired=True),
        **{f"pre-training seeds, {n} and {n}": Study(pretrainings=n, finetunings=3) for n in (2, 3, 4, 8)},
        **{
            f"noisy pre-training seeds, one run of each, {n} and {n}": Study(n, 1, seed_noise=0.4) for n in (2, 3, 5, 8)
        },
        "models good at different things, 4 and 4": Study(4, 2, seed_noise=0.1, model_noise=1.0),
        "real difference, 5 and 5": Study(5, 3, advantage=0.7),
        "real difference, 8 pairs": Study(8, 3, paired=True, advantage=0.7),
    }
    print("| study | true difference | called | interval covers | bootstrap covers |\n|---|---|---|---|---|")
    for name, study in studies.items():
        comparisons, truth = repeat(study, trials, seed=1), study.true_difference()
        rates = [called(comparisons), covered(comparisons, truth), covered(comparisons, truth, bootstrap=True)]
        cells = [name, f"{100 * truth:.2f}", *(f"{100 * rate:.1f} %" for rate in rates)]
        print("|", " | ".join(cells), "|", flush=True)
    for correlation in (0.0, 0.3, 0.6):
        print(f"unpaired, correlation {correlation}: {false_calls(trials, correlation=correlation):.1%} called")
    for ratio in (3, 10):
        print(f"unpaired, standard deviations 1 and {ratio}: {false_calls(trials, ratio=ratio):.1%} called")


if __name__ == "__main__":
    print_table()
