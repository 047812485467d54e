import numpy as np
import pytest

from sharedqkv.evidence import resampling
from sharedqkv.evidence.resampling import hierarchical_bootstrap, mean_score, plain_scores, resampled_scores
from sharedqkv.tasks.metrics import accuracy, f1, matthews, pearson, spearman


def classes(rng, runs=3, examples=40):
    labels = rng.integers(2, size=examples)
    return labels, np.where(rng.random((runs, examples)) < 0.7, labels, 1 - labels)


def numbers(rng, runs=3, examples=40):
    labels = np.round(rng.random(examples) * 25) / 5
    predictions = labels + rng.normal(size=(runs, examples))
    return labels, np.round(predictions, 1)


every_metric = pytest.mark.parametrize(
    ("metric", "data"),
    [
        (accuracy, classes),
        (f1, classes),
        (matthews, classes),
        (pearson, numbers),
        (spearman, numbers),
        (mean_score, numbers),
    ],
    ids=lambda value: value.__name__,
)


@every_metric
def test_scores_on_all_examples_equal_the_metric(metric, data):
    labels, predictions = data(np.random.default_rng(1))
    assert plain_scores(labels, predictions, [metric]) == pytest.approx([metric(labels, run) for run in predictions])


@every_metric
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_run_that_diverged_is_not_scored(metric, data, bad):
    labels, predictions = data(np.random.default_rng(1))
    predictions = predictions.astype(float)
    predictions[1, 3] = bad
    with pytest.raises(ValueError, match="diverge"):
        plain_scores(labels, predictions, [metric])


def test_a_split_without_labels_is_not_scored():
    with pytest.raises(ValueError, match="without labels"):
        plain_scores(np.full(5, -1), np.zeros((2, 5)), [accuracy])


@pytest.mark.parametrize("metric", [accuracy, matthews], ids=lambda metric: metric.__name__)
def test_scores_of_three_classes_equal_the_metric(metric):
    rng = np.random.default_rng(0)
    labels, predictions = rng.integers(3, size=60), rng.integers(3, size=(2, 60))
    assert plain_scores(labels, predictions, [metric]) == pytest.approx([metric(labels, run) for run in predictions])


@every_metric
def test_scores_from_counts_equal_the_metric_on_repeated_examples(metric, data):
    labels, predictions = data(np.random.default_rng(1))
    # A wrapper is unknown to the table of fast forms, so the metric itself is called.
    slow = resampled_scores(labels, predictions, [lambda *pair: metric(*pair)], draws=50, seed=2)
    fast = resampled_scores(labels, predictions, [metric], draws=50, seed=2)
    assert fast.shape == (3, 50)
    assert fast == pytest.approx(slow, abs=1e-12)
    assert np.ptp(fast, axis=1).min() > 0.01, "resamples differ"


@pytest.mark.parametrize("metric", [f1, matthews, pearson, spearman], ids=lambda metric: metric.__name__)
def test_undefined_scores_are_zero(metric):
    constant = np.zeros((1, 30))
    assert (resampled_scores(np.arange(30) % 2, constant, [metric], draws=20, seed=0) == 0).all()


def test_matthews_of_three_classes_is_not_taken_for_a_correlation():
    rng = np.random.default_rng(0)
    labels, predictions = rng.integers(3, size=60), rng.integers(3, size=(2, 60))
    fast = resampled_scores(labels, predictions, [matthews], draws=10, seed=0)
    assert fast == pytest.approx(resampled_scores(labels, predictions, [lambda *p: matthews(*p)], draws=10, seed=0))


def test_several_metrics_are_averaged():
    labels, predictions = classes(np.random.default_rng(0))
    both = resampled_scores(labels, predictions, [accuracy, f1], draws=10, seed=0)
    each = [resampled_scores(labels, predictions, [metric], draws=10, seed=0) for metric in (accuracy, f1)]
    assert both == pytest.approx(np.mean(each, axis=0))


def test_large_splits_are_resampled_in_parts(monkeypatch):
    labels, predictions = classes(np.random.default_rng(0), examples=500)
    whole = resampled_scores(labels, predictions, [accuracy], draws=400, seed=0)
    monkeypatch.setattr(resampling, "_MAX_COUNTS", 500 * 7)
    parts = resampled_scores(labels, predictions, [accuracy], draws=400, seed=0)
    assert parts == pytest.approx(whole)
    assert parts.std(axis=1) == pytest.approx(np.sqrt(0.7 * 0.3 / 500), rel=0.2)


def test_runs_see_the_same_examples():
    labels, predictions = classes(np.random.default_rng(0), runs=1)
    first, second = resampled_scores(labels, np.repeat(predictions, 2, axis=0), [accuracy], draws=30, seed=0)
    assert (first == second).all()


def units(rng, means, runs=4, draws=4000, run_std=0.0):
    """Unit scores that do not depend on the examples."""
    return [np.repeat(mean + run_std * rng.normal(size=(runs, 1)), draws, axis=1) for mean in means]


def test_bootstrap_resamples_units():
    means = np.array([0.0, 1.0, 5.0])
    draws = hierarchical_bootstrap(units(np.random.default_rng(0), means), [np.zeros((1, 4000))], paired=False, seed=0)
    assert len(np.unique(np.round(draws, 9))) == 10, "all multisets of three units"
    assert draws.mean() == pytest.approx(2.0, abs=0.1)
    assert draws.std() == pytest.approx(means.std() / np.sqrt(3), rel=0.05)


def test_bootstrap_resamples_runs_within_units():
    run_scores = np.array([0.0, 1.0, 5.0])
    one_unit = [np.repeat(run_scores[:, None], 4000, axis=1)]
    draws = hierarchical_bootstrap(one_unit, [np.zeros((1, 4000))], paired=False, seed=0)
    assert draws.std() == pytest.approx(run_scores.std() / np.sqrt(3), rel=0.05)


def test_bootstrap_follows_the_resampled_examples():
    by_example = np.random.default_rng(0).normal(size=(1, 4000))
    draws = hierarchical_bootstrap([by_example], [np.zeros((1, 4000))], paired=False, seed=0)
    assert draws == pytest.approx(by_example[0])


def test_paired_units_are_drawn_together():
    rng = np.random.default_rng(0)
    means = rng.normal(size=5)
    a, b = units(rng, means + 1), units(rng, means)
    assert hierarchical_bootstrap(a, b, paired=True, seed=0) == pytest.approx(1.0)
    apart = hierarchical_bootstrap(a, b, paired=False, seed=0)
    assert apart.std() == pytest.approx(means.std() * np.sqrt(2 / 5), rel=0.05)


def test_units_may_have_unlike_numbers_of_runs():
    a = [np.zeros((1, 100)), np.ones((3, 100))]
    draws = hierarchical_bootstrap(a, [np.zeros((2, 100))], paired=False, seed=0)
    assert set(draws) == {0.0, 0.5, 1.0}
