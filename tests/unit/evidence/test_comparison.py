import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from sharedqkv.evidence.comparison import compare, compare_scores, correct_for_family, verdict
from sharedqkv.evidence.runs import Predictions, RunScores, TaskRuns
from sharedqkv.tasks.metrics import accuracy, f1


def runs_with_accuracies(model, accuracies, examples=400, task="rte"):
    """Pre-training seed → fine-tuning seed → accuracy, made true by wrong answers at random places."""
    runs = {}
    for pretraining, finetunings in accuracies.items():
        runs[pretraining] = {}
        for finetuning, value in finetunings.items():
            labels = np.arange(examples) % 2
            right = (
                np.random.default_rng([pretraining, finetuning, len(model)]).permutation(examples) < value * examples
            )
            runs[pretraining][finetuning] = Predictions(range(examples), labels, np.where(right, labels, 1 - labels))
    return TaskRuns(model, task, runs)


def checkpoint(model, values, **options):
    return runs_with_accuracies(model, {0: dict(enumerate(values))}, **options)


def pretrained(model, values, **options):
    """One list of fine-tuned models' accuracies for each pre-training seed."""
    nested = {seed: dict(enumerate(finetunings)) for seed, finetunings in enumerate(values)}
    return runs_with_accuracies(model, nested, **options)


A_CHECKPOINT = checkpoint("shared", [0.80, 0.81, 0.82, 0.83, 0.84, 0.85])
B_CHECKPOINT = checkpoint("standard", [0.70, 0.72, 0.71, 0.73, 0.75, 0.74])


def test_a_comparison_by_hand():
    c = compare(A_CHECKPOINT, B_CHECKPOINT, [accuracy])
    assert (c.unit, c.paired, c.units_a, c.units_b) == ("fine-tuning seed", True, 6, 6)
    assert (c.mean_a, c.mean_b, c.difference) == pytest.approx((0.825, 0.725, 0.1))
    assert c.std_a == pytest.approx(np.std([0, 1, 2, 3, 4, 5], ddof=1) / 100)
    assert (c.p, c.smallest_p) == (2 / 64, 2 / 64)
    assert c.called
    assert c.noise == pytest.approx(np.std([10, 9, 11, 10, 9, 11], ddof=1) / 100)
    assert c.smallest_difference == pytest.approx(1.79 * c.noise, rel=0.04)
    assert c.interval[0] < 0.1 < c.interval[1]
    assert c.bootstrap_interval[0] < 0.1 < c.bootstrap_interval[1]
    assert c.effect_size == pytest.approx(0.1 / c.std_a * (1 - 3 / 39))


def test_sides_can_be_swapped():
    there, back = compare(A_CHECKPOINT, B_CHECKPOINT, [accuracy]), compare(B_CHECKPOINT, A_CHECKPOINT, [accuracy])
    assert back.difference == pytest.approx(-there.difference)
    assert back.interval == pytest.approx((-there.interval[1], -there.interval[0]))
    assert back.p == there.p
    assert "this checkpoint of shared beats this checkpoint of standard by 10.00 points" in verdict(there)
    assert "this checkpoint of shared beats this checkpoint of standard by 10.00 points" in verdict(back)


def test_several_pretraining_seeds_are_the_unit():
    a = pretrained("shared", [[0.80, 0.84], [0.81, 0.81], [0.84, 0.86], [0.82, 0.82]])
    b = pretrained("standard", [[0.70, 0.74], [0.71, 0.71], [0.74], [0.72, 0.72]])
    c = compare(a, b, [accuracy], paired=False)
    assert (c.unit, c.units_a, c.runs_a, c.runs_b) == ("pre-training seed", 4, 8, 7)
    assert c.mean_b == pytest.approx(np.mean([0.72, 0.71, 0.74, 0.72])), "every pre-training seed counts once"
    assert c.p == pytest.approx(2 / 70)
    assert "checkpoint" not in verdict(c)
    assert compare(a, b, [accuracy]).paired, "the same pre-training seeds are paired unless told otherwise"


def test_other_seeds_are_not_paired():
    b = TaskRuns("standard", "rte", {0: {seed + 10: run for seed, run in B_CHECKPOINT.runs[0].items()}})
    c = compare(A_CHECKPOINT, b, [accuracy])
    assert not c.paired
    assert c.smallest_p == pytest.approx(2 / 924)
    with pytest.raises(ValueError, match="cannot pair fine-tuning seeds"):
        compare(A_CHECKPOINT, b, [accuracy], paired=True)


def test_one_run_each_gives_no_verdict():
    c = compare(checkpoint("shared", [0.9]), checkpoint("standard", [0.6]), [accuracy])
    assert (c.p, c.smallest_p, c.called, c.std_a, c.effect_size) == (1.0, 1.0, False, None, None)
    assert c.interval[0] > 0.2, "the examples' noise is still known"
    assert "no verdict: with one run of each model" in verdict(c)
    assert "(examples only)" in verdict(c)


def test_identical_models_do_not_differ():
    c = compare(A_CHECKPOINT, replace(A_CHECKPOINT, model="copy"), [accuracy])
    assert (c.difference, c.p, c.interval, c.called) == (0.0, 1.0, (0.0, 0.0), False)
    assert "no difference between" in verdict(c)


def test_a_hopeless_design_says_so():
    a, b = pretrained("shared", [[0.9]] * 3), pretrained("standard", [[0.5]] * 3)
    c = compare(a, b, [accuracy])
    assert (c.p, c.smallest_p, c.could_be_called, c.smallest_difference) == (0.25, 0.25, False, None)
    words = verdict(c)
    assert "with 3 pairs of pre-training seeds no result could have been significant at 0.05" in words
    assert "no difference, however large, could have been found" in words


def test_chance_is_called_chance():
    a = checkpoint("shared", [0.80, 0.70, 0.80, 0.70, 0.80, 0.70, 0.76])
    b = checkpoint("standard", [0.70, 0.80, 0.70, 0.80, 0.70, 0.80, 0.74])
    words = verdict(compare(a, b, [accuracy]))
    assert "no difference shown; this checkpoint of shared is 0.29 points ahead" in words
    assert "points would have been found 4 times in 5" in words


def test_a_family_of_tasks_is_corrected():
    comparisons = correct_for_family([compare(A_CHECKPOINT, B_CHECKPOINT, [accuracy], paired=False)] * 8)
    assert comparisons[0].p_corrected == pytest.approx(8 * 2 / 924)
    assert all(c.called for c in comparisons)
    assert "0.017 with Holm's correction over 8 comparisons" in verdict(comparisons[0])

    [early] = correct_for_family(comparisons[:1], awaited=7)
    assert (early.family, early.p_corrected) == (8, pytest.approx(8 * 2 / 924))
    assert early.smallest_p_corrected == comparisons[0].smallest_p_corrected
    assert early.smallest_difference == comparisons[0].smallest_difference

    hopeless = correct_for_family([compare(A_CHECKPOINT, B_CHECKPOINT, [accuracy])] * 2)
    assert not hopeless[0].called
    assert not hopeless[0].could_be_called
    assert "over 2 comparisons, since p cannot fall below 0.062" in verdict(hopeless[0])


def test_a_weak_design_can_be_called_after_a_strong_one():
    weak = compare(A_CHECKPOINT, B_CHECKPOINT, [accuracy])
    strong = compare(A_CHECKPOINT, B_CHECKPOINT, [accuracy], paired=False)
    weak, strong = correct_for_family([weak, strong])
    assert weak.called
    assert weak.smallest_difference is None
    assert "could be called only after that of another comparison" in verdict(weak)


def test_a_difference_on_these_examples_only():
    """Every seed is right on one example more: clear for the seeds, nothing for 40 examples."""
    labels = np.arange(40) % 2
    worse = np.where(np.arange(40) < 10, 1 - labels, labels)
    better = np.where(np.arange(40) == 0, labels, worse)
    a, b = (
        TaskRuns(model, "rte", {0: {seed: Predictions(range(40), labels, answers) for seed in range(6)}})
        for model, answers in (("shared", better), ("standard", worse))
    )
    words = verdict(compare(a, b, [accuracy]))
    assert "beats" in words
    assert "The interval includes 0: on other examples" in words


def test_several_metrics_count_equally():
    c = compare(A_CHECKPOINT, B_CHECKPOINT, [accuracy, f1])
    run = A_CHECKPOINT.runs[0][0]
    both = [
        np.mean([metric(r.labels, r.predictions) for metric in (accuracy, f1)]) for r in A_CHECKPOINT.runs[0].values()
    ]
    assert accuracy(run.labels, run.predictions) != f1(run.labels, run.predictions)
    assert c.mean_a == pytest.approx(np.mean(both))


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([[0.8], [0.7]], [[0.8, 0.7]], "shared has 2 and standard has 1 pre-training seeds"),
        ([[0.8]], [[0.8, 0.7]], "shared has 1 and standard has 2 fine-tuning seeds"),
    ],
)
def test_one_seed_against_several_is_an_error(a, b, message):
    with pytest.raises(ValueError, match=message):
        compare(pretrained("shared", a), pretrained("standard", b), [accuracy])


def test_alpha_is_checked():
    with pytest.raises(ValueError, match="alpha 5 must lie between 0 and 1"):
        compare(A_CHECKPOINT, B_CHECKPOINT, [accuracy], alpha=5)


def test_the_interval_counts_disagreement_between_runs_once():
    """Scores with all their noise in the seeds: the interval is Student's."""
    rng = np.random.default_rng(0)
    scores = rng.normal(0.8, 0.02, size=5)
    own_noise = rng.normal(0, 0.02, size=(5, 20_000))
    a = RunScores("a", "t", 100, tuple((0, seed) for seed in range(5)), scores, scores[:, None] + own_noise)
    b = replace(a, model="b", scores_R=np.full(5, 0.7), draws_RD=np.full((5, 20_000), 0.7))
    c = compare_scores(a, b)
    reach = 2.776445 * scores.std(ddof=1) / 5**0.5
    assert c.interval == pytest.approx((c.difference - reach, c.difference + reach), abs=0.02 * reach)


def test_a_comparison_can_be_written_as_json():
    c = compare(A_CHECKPOINT, B_CHECKPOINT, [accuracy])
    assert json.loads(json.dumps(asdict(c)))["difference"] == c.difference
