"""Curves, losses and verdicts from predictions whose accuracies are planted."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from sharedqkv.evidence.comparison import interval_of_mean
from sharedqkv.evidence.finetuned import group_runs
from sharedqkv.evidence.robustness import EVERY_DOMAIN, EVERY_NOISE, Analysis, _claim, analyse, common_tasks
from sharedqkv.evidence.runs import Predictions, RunScores, TaskRuns, score_runs
from sharedqkv.robustness.conditions import Condition, conditions_for
from sharedqkv.robustness.grid import Plan
from sharedqkv.robustness.tried import cell_file
from sharedqkv.tasks.cells import Cell, write_json, write_predictions
from sharedqkv.tasks.metrics import accuracy

PLAN = Plan(noises=["keyboard"], severities=(1, 5), seeds=(0,), domains=[])


def make_run(folder, variant, accuracy_of, plan=PLAN, seeds=1, pretraining_seed=0, tasks=("sst2",), examples=200):
    """A run that was tried. `accuracy_of(condition, severity, fine-tuning seed)` comes true to an example."""
    model = {"variant": variant, "pretraining_seed": pretraining_seed, "sha256": str(folder)}
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"kind": "finetune", "model": model}))
    for task in tasks:
        conditions, _ = conditions_for(task, plan.noises, plan.severities, plan.seeds, plan.domains)
        for seed in range(seeds):
            write_json(Cell(folder, task, seed).record_file, {})
            for condition in conditions:
                records = [
                    {**record, "severity": severity}
                    for severity in condition.severities
                    for record in make_records(accuracy_of(condition, severity, seed), seed, examples)
                ]
                file = cell_file(folder, task, condition, seed)
                write_predictions(file, records)
                write_json(file.with_suffix(".json"), {"chance": 0.5, "counts": {"left out": 3}})
    return str(folder)


def make_records(accuracy, seed, examples):
    right = np.random.default_rng(seed).permutation(examples) < round(accuracy * examples)
    for number, is_right in enumerate(right.tolist()):
        label = number % 2
        yield {"id": number, "label": label, "prediction": label if is_right else 1 - label, "scores": []}


def curve(clean, light, heavy):
    """Accuracies by severity, the same for all seeds and noises."""
    return lambda condition, severity, seed: {0: clean, 1: light, 5: heavy}[severity]


def spread(clean, noisy, spreads):
    """The clean accuracy, and a noisy one that differs between the seeds."""
    return lambda condition, severity, seed: noisy + spreads[seed] if severity else clean


def analysis_of(runs, plan=PLAN, **options):
    return analyse(group_runs(runs), plan, **options)


def test_losses_and_area_by_hand(tmp_path):
    plan = replace(PLAN, noises=["keyboard", "gaussian"])
    analysis = analysis_of([make_run(tmp_path / "a", "standard", curve(0.9, 0.8, 0.6), plan)], plan)
    text, model = analysis.curves
    assert (text.task, text.noise, text.model, text.severities) == ("sst2", "keyboard", "standard", (0, 1, 5))
    assert [score.mean for score in text.scores] == pytest.approx([0.9, 0.8, 0.6])
    assert text.absolute_loss.mean == pytest.approx(0.9 - (0.8 + 0.6) / 2)
    assert text.relative_loss.mean == pytest.approx((0.1 / 0.4 + 0.3 / 0.4) / 2)
    assert text.levels == (0, 0.02, 0.30)
    assert text.area.mean == pytest.approx((0.02 * 0.85 + 0.28 * 0.7) / 0.30)
    assert model.levels == (0, 0.1, 1.5)
    assert model.area.mean == pytest.approx((0.1 * 0.85 + 1.4 * 0.7) / 1.5)
    for estimate in (*text.scores, text.absolute_loss, text.relative_loss, text.area):
        assert estimate.low < estimate.mean < estimate.high
    assert (text.examples, text.chance, text.noise_seeds) == (200, 0.5, 1)
    assert analysis.claims == []


def test_a_weak_model_does_not_look_robust(tmp_path):
    """It loses fewer points, but all it has."""
    strong = make_run(tmp_path / "a", "standard", curve(0.95, 0.90, 0.85))
    weak = make_run(tmp_path / "b", "shared", curve(0.60, 0.55, 0.50))
    of_strong, of_weak = analysis_of([strong, weak]).curves
    assert of_weak.absolute_loss.mean == pytest.approx(of_strong.absolute_loss.mean)
    assert of_strong.relative_loss.mean == pytest.approx(0.075 / 0.45)
    assert of_weak.relative_loss.mean == pytest.approx(0.75)


def test_a_model_at_chance_has_nothing_to_lose(tmp_path):
    good = make_run(tmp_path / "a", "standard", curve(0.9, 0.8, 0.6))
    at_chance = make_run(tmp_path / "b", "shared", curve(0.52, 0.51, 0.5))
    analysis = analysis_of([good, at_chance])
    assert [curve.relative_loss is None for curve in analysis.curves] == [False, True]
    assert analysis.claims == []
    assert analysis.left_out["sst2, shared"].startswith("no relative loss, since a clean score of it is less than 5")
    third = make_run(tmp_path / "c", "tied", curve(0.9, 0.8, 0.7))
    [claim] = analysis_of([good, at_chance, third]).claims
    assert (claim.comparison.model_a, claim.comparison.model_b) == ("tied", "standard")


def test_intervals_of_scores_end_where_the_metric_does(tmp_path):
    """Two seeds that differ, near the best score and near the worst; a correlation may be negative."""
    plan = Plan(noises=["gaussian"], severities=(1, 5), seeds=(0,), domains=["imdb"])
    accuracy_of = spread(0.9, 0.0, [0.0, 0.1])
    accurate, correlated = (
        analysis_of([make_run(tmp_path / task, "standard", accuracy_of, plan, seeds=2, tasks=(task,))], plan)
        for task in ("sst2", "cola")
    )
    [of_accuracy], [of_correlation] = accurate.curves, correlated.curves
    assert [score.low for score in of_accuracy.scores[1:]] == [0, 0]
    assert [score.low for score in of_correlation.scores[1:]] == [-1, -1]
    assert of_accuracy.area.low == 0
    assert of_accuracy.absolute_loss.high > 1, "only scores have a range"
    better = make_run(tmp_path / "better", "standard", lambda c, severity, seed: 0.9 + 0.1 * seed, plan, seeds=2)
    analysis = analysis_of([better], plan)
    for estimate in (*analysis.curves[0].scores, analysis.curves[0].area, analysis.domains[0].score):
        assert (estimate.mean, estimate.high) == (pytest.approx(0.95), 1)
        assert estimate.low > 0


def test_noise_seeds_are_averaged(tmp_path):
    plan = replace(PLAN, seeds=(0, 7))
    run = make_run(tmp_path / "a", "standard", lambda c, severity, seed: 0.9 - 0.02 * severity * (c.seed == 7), plan)
    [both] = analysis_of([run], plan).curves
    [one] = analysis_of([run], PLAN).curves
    assert (both.noise_seeds, one.noise_seeds) == (2, 1)
    assert [score.mean for score in both.scores] == pytest.approx([0.9, 0.89, 0.85])
    assert [score.mean for score in one.scores] == pytest.approx([0.9, 0.9, 0.9])


def test_the_band_covers_the_true_score():
    """Of many studies with seeds and examples drawn anew: 95 % of the intervals hold the score that all aim at."""
    trials, covered, truth = 200, 0, norm.cdf(1 / np.sqrt(1 + 1 + 0.3**2))
    rng = np.random.default_rng(0)
    for _ in range(trials):
        hardness = rng.normal(size=150)
        skills = 1 + 0.3 * rng.normal(size=4)
        right = hardness + rng.normal(size=(4, 150)) < skills[:, None]
        labels = np.zeros(150, dtype=int)
        runs = TaskRuns("m", "t", {0: {s: Predictions(range(150), labels, 1 - r) for s, r in enumerate(right)}})
        [scores] = score_runs([runs], [accuracy], draws=200)
        low, high = interval_of_mean(scores)
        covered += low <= truth <= high
    assert covered / trials == pytest.approx(0.95, abs=0.04)


LITTLE = [0.00, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035]
TINY = [0.0, 0.0005] * 4
WIDE = [0.0, 0.2, 0.05, 0.15, 0.1, 0.0, 0.2, 0.1]
TURNED = WIDE[::-1]


def claim_between(tmp_path, first, other, seeds=8, examples=400):
    standard = make_run(tmp_path / "a", "standard", first, seeds=seeds, examples=examples)
    shared = make_run(tmp_path / "b", "shared", other, seeds=seeds, examples=examples)
    [claim] = analysis_of([standard, shared]).claims
    assert (claim.subject, claim.comparison.model_a, claim.comparison.model_b) == (
        "sst2, keyboard", "shared", "standard",
    )  # fmt: skip
    return claim


def test_a_planted_advantage_holds(tmp_path):
    claim = claim_between(tmp_path, spread(0.9, 0.6, LITTLE), spread(0.9, 0.8, LITTLE))
    assert claim.verdict == "holds"
    assert claim.comparison.difference == pytest.approx(0.2 / 0.4), "of the quality above chance"
    assert claim.comparison.unit == "fine-tuning seed"


def test_a_planted_disadvantage_is_the_opposite(tmp_path):
    claim = claim_between(tmp_path, spread(0.9, 0.8, LITTLE), spread(0.9, 0.6, LITTLE))
    assert claim.verdict == "does not hold: the opposite does"


def test_equal_models_with_little_spread_rule_an_advantage_out(tmp_path):
    claim = claim_between(tmp_path, spread(0.9, 0.8, TINY), spread(0.9, 0.8, TINY[::-1]), examples=2000)
    assert claim.verdict == "does not hold: an advantage of 1 point or more is ruled out"


def test_equal_models_with_a_wide_spread_cannot_be_told_apart(tmp_path):
    claim = claim_between(tmp_path, spread(0.9, 0.6, WIDE), spread(0.9, 0.6, TURNED))
    detectable = claim.comparison.smallest_difference
    assert detectable == pytest.approx(1.3 * claim.comparison.noise, rel=0.3)
    assert claim.verdict == (
        f"cannot be told at this sample size: a difference of {100 * detectable:.1f} points would be, 4 times in 5"
    )


@pytest.mark.parametrize(("seeds", "why"), [(1, "with one model of each"), (3, "since p cannot fall below 0.25")])
def test_few_seeds_cannot_tell_anything(seeds, why, tmp_path):
    worse, better = spread(0.9, 0.5, LITTLE), spread(0.9, 0.9, LITTLE)
    for folder, pair in (("better", (worse, better)), ("worse", (better, worse))):
        claim = claim_between(tmp_path / folder, *pair, seeds=seeds)
        assert claim.verdict == f"cannot be told at this sample size: no difference could be, {why}"


def test_an_advantage_that_hangs_on_a_few_examples_is_said_to(tmp_path):
    """The seeds agree, but the interval, which counts the examples too, holds 0."""
    claim = claim_between(tmp_path, spread(0.9, 0.6, LITTLE), spread(0.9, 0.8, LITTLE), examples=100)
    unsure = replace(claim, comparison=replace(claim.comparison, interval=(-0.1, 0.5)))
    assert (claim.verdict, unsure.verdict) == ("holds", "holds, but on other examples may not")


def test_main_claims_and_the_others_are_families_of_their_own(tmp_path):
    """Else nobody's eight seeds could tell anything under all noises."""
    noises = ["keyboard", "swap", "drop", "insert", "repeat", "ocr", "casing", "punctuation"]
    plan = replace(PLAN, noises=noises)
    runs = [
        make_run(tmp_path / name, name, spread(0.9, noisy, LITTLE), plan, seeds=8, tasks=("sst2", "rte"), examples=100)
        for name, noisy in (("standard", 0.6), ("shared", 0.8), ("tied", 0.6))
    ]
    claims = analysis_of(runs, plan).claims
    main = [claim for claim in claims if claim.main]
    assert [(c.subject, c.comparison.model_a) for c in main] == [
        (f"{task}, {EVERY_NOISE}", model) for task in ("rte", "sst2") for model in ("shared", "tied")
    ]
    assert {claim.comparison.family for claim in main} == {4}
    assert [claim.verdict == "holds" for claim in main] == [True, False, True, False]
    parts = [claim for claim in claims if not claim.main]
    assert len(parts) == len(noises) * 4
    assert {claim.comparison.family for claim in parts} == {len(parts)}
    assert main[0].comparison.difference == pytest.approx(parts[0].comparison.difference)


def test_pretraining_seeds_are_the_unit_where_there_are_several(tmp_path):
    runs = [
        make_run(tmp_path / f"{variant}{seed}", variant, spread(0.9, noisy + 0.01 * seed, LITTLE), PLAN, 2, seed)
        for variant, noisy in (("standard", 0.6), ("shared", 0.7))
        for seed in range(6)
    ]
    analysis = analysis_of(runs)
    assert analysis.models == ["standard", "shared"]
    [claim] = analysis.claims
    comparison = claim.comparison
    assert (comparison.unit, comparison.paired, comparison.units_a, comparison.runs_a) == (
        "pre-training seed", True, 6, 12,
    )  # fmt: skip
    assert claim.verdict == "holds"


def test_one_seed_against_several_is_left_out_and_told(tmp_path):
    one = make_run(tmp_path / "a", "standard", curve(0.9, 0.8, 0.6), seeds=1)
    two = make_run(tmp_path / "b", "shared", curve(0.9, 0.8, 0.6), seeds=2)
    analysis = analysis_of([one, two])
    assert len(analysis.curves) == 2
    assert analysis.claims == []
    assert "shared has 2 and standard has 1 fine-tuning seeds" in analysis.left_out["shared against standard"]


def test_domains_by_hand(tmp_path):
    plan = replace(PLAN, noises=[], domains=["imdb", "yelp"])
    scores = {"clean": 0.9, "imdb": 0.7, "yelp": 0.5}
    runs = [
        make_run(tmp_path / name, name, lambda c, severity, seed, more=more: scores[c.name] + more, plan, seeds=6)
        for name, more in (("standard", 0.0), ("shared", 0.05))
    ]
    analysis = analysis_of(runs, plan)
    imdb, better, yelp, _ = analysis.domains
    assert (imdb.task, imdb.domain, imdb.model, imdb.examples) == ("sst2", "imdb", "standard", 200)
    assert (imdb.score.mean, imdb.in_domain, imdb.chance) == pytest.approx((0.7, 0.9, 0.5))
    assert imdb.relative_loss.mean == pytest.approx(1 - (0.2 / 0.5) / (0.4 / 0.5))
    assert better.relative_loss.mean == pytest.approx(1 - 0.25 / 0.45)
    assert yelp.relative_loss.mean == pytest.approx(1)
    assert imdb.counts == {"left out": 3}
    mean, *parts = analysis.claims
    assert (mean.subject, mean.main, mean.measure) == (f"sst2 → {EVERY_DOMAIN}", True, "score")
    assert [claim.subject for claim in parts] == ["sst2 → imdb", "sst2 → yelp"]
    assert [claim.comparison.difference for claim in analysis.claims] == pytest.approx([0.05] * 3)
    assert [claim.comparison.examples for claim in analysis.claims] == [400, 200, 200]


def test_domains_with_other_classes_are_scored_in_those(tmp_path):
    plan = replace(PLAN, noises=[], domains=["hans"])
    run = make_run(tmp_path / "a", "standard", lambda *_: 0.5, plan, tasks=("mnli",), examples=4)
    pairs = [(0, 0), (0, 2), (1, 1), (1, 2)]  # neutral and contradiction are both not_entailment
    records = [{"id": n, "label": a, "prediction": b, "scores": [], "severity": 0} for n, (a, b) in enumerate(pairs)]
    write_predictions(cell_file(tmp_path / "a", "mnli", Condition("hans"), seed=0), records)
    [hans] = analysis_of([run], plan).domains
    assert hans.score.mean == 3 / 4


def test_what_was_not_tried_is_left_out(tmp_path):
    plan = replace(PLAN, noises=["keyboard", "swap"], domains=["imdb"])
    run = make_run(tmp_path / "a", "standard", lambda *_: 0.9, plan)
    cell_file(tmp_path / "a", "sst2", Condition("swap"), seed=0).with_suffix(".json").unlink()
    analysis = analysis_of([run], plan, untried={"sst2, imdb": "no such file"})
    assert [curve.noise for curve in analysis.curves] == ["keyboard"]
    assert analysis.domains == []
    assert analysis.left_out == {"sst2, swap": "not every model has been tried", "sst2, imdb": "no such file"}


def test_exclusions_are_left_out_with_the_reason(tmp_path):
    run = make_run(tmp_path / "a", "standard", lambda *_: 0.9, tasks=("cola",))
    assert analysis_of([run]).left_out["cola, keyboard"].startswith("acceptability is a judgement")


def test_tasks_in_common(tmp_path):
    both = make_run(tmp_path / "a", "standard", lambda *_: 0.9, tasks=("sst2", "rte"))
    one = make_run(tmp_path / "b", "shared", lambda *_: 0.9, tasks=("sst2",))
    other = make_run(tmp_path / "c", "tied", lambda *_: 0.9, tasks=("cola",))
    assert common_tasks(group_runs([both, one]), []) == (["sst2"], ["rte"])
    assert common_tasks(group_runs([both]), ["rte"]) == (["rte"], [])
    assert analysis_of([both, one]).left_out == {"rte": "not every run has it"}
    with pytest.raises(ValueError, match="b has no finished cell of rte; its tasks: sst2"):
        common_tasks(group_runs([both, one]), ["rte"])
    with pytest.raises(ValueError, match=r"the runs have no task in common: .*b has sst2; .*c has cola"):
        common_tasks(group_runs([one, other]), [])


def test_without_a_difference_few_studies_claim_any(tmp_path):
    """Four noises of the same two models: at most 5 % of such studies may call any difference."""
    models = group_runs([make_run(tmp_path / name, name, lambda *_: 0.9) for name in ("standard", "shared")])
    rng, trials, called = np.random.default_rng(0), 300, 0
    for _ in range(trials):
        analysis = Analysis([], [], [], [], {})
        scores = [{name: _random_scores(name, noise, rng) for name in ("standard", "shared")} for noise in "abcd"]
        _claim(scores, "score", False, models, [("shared", "standard")], analysis)
        called += any(claim.comparison.called for claim in analysis.claims)
    assert 0 < called / trials < 0.05 + 3 * np.sqrt(0.05 * 0.95 / trials)


def _random_scores(model, task, rng, seeds=8):
    scores = 0.8 + 0.02 * rng.normal(size=seeds)
    draws = scores[:, None] + 0.01 * rng.normal(size=(seeds, 20))
    return RunScores(model, task, 500, tuple((0, seed) for seed in range(seeds)), scores, draws)


def test_pairs_are_compared_as_asked_and_corrected_by_family(tmp_path):
    names = ("standard", "shared", "narrow", "tied")
    runs = [make_run(tmp_path / name, name, spread(0.9, 0.6, LITTLE), seeds=8) for name in names]
    pairs = [[("shared", "standard"), ("tied", "shared")], [("narrow", "tied"), ("narrow", "nobody")]]
    claims = analysis_of(runs, pairs=pairs).claims
    assert [(c.comparison.model_a, c.comparison.model_b, c.comparison.family) for c in claims] == [
        ("shared", "standard", 2),
        ("tied", "shared", 2),
        ("narrow", "tied", 1),
    ]
