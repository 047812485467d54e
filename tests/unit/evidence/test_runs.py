from dataclasses import replace

import numpy as np
import pytest

from sharedqkv.evidence.comparison import compare_scores
from sharedqkv.evidence.runs import Predictions, TaskRuns, combine_scores, mcnemar_by_pair, score_runs
from sharedqkv.evidence.statistics import McNemar
from sharedqkv.tasks.metrics import accuracy, glue_average

IDS = ["c", "a", "b", "d"]
LABELS = [1, 0, 1, 0]
ALL_RIGHT = Predictions(IDS, LABELS, LABELS)
ONE_WRONG = Predictions(IDS, LABELS, [0, 0, 1, 0])
TWO_WRONG = Predictions(IDS, LABELS, [1, 1, 0, 0])


def runs(model, *predictions, task="rte"):
    return TaskRuns(model, task, {0: dict(enumerate(predictions))})


def test_scores_stand_in_the_order_of_the_seeds():
    a = TaskRuns("a", "rte", {7: {2: TWO_WRONG, 1: ONE_WRONG}, 3: {1: ALL_RIGHT}})
    scores, other = score_runs([a, runs("b", ALL_RIGHT)], [accuracy], draws=5)
    assert scores.seeds == ((3, 1), (7, 1), (7, 2))
    assert scores.scores_R.tolist() == [1.0, 0.75, 0.5]
    assert scores.draws_RD.shape == (3, 5)
    assert (other.model, other.examples, other.scores_R.tolist()) == ("b", 4, [1.0])


def test_examples_are_matched_by_id():
    shuffled = Predictions(["d", "c", "b", "a"], [0, 1, 1, 0], [0, 0, 1, 0])
    (a, b) = score_runs([runs("a", ONE_WRONG), runs("b", shuffled)], [accuracy], draws=50)
    assert (a.draws_RD == b.draws_RD).all(), "the same examples are drawn for both"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Predictions(["c", "a", "b", "e"], LABELS, LABELS), "2 example ids are not in every run, 'd' for one"),
        (Predictions(IDS[:3], LABELS[:3], LABELS[:3]), "1 example ids are not in every run, 'd' for one"),
        (Predictions(["a", "a", "b", "d"], LABELS, LABELS), "1 example ids occur more than once"),
        (Predictions(IDS, [1, 1, 1, 1], LABELS), "labels differ"),
        (Predictions(IDS, LABELS, LABELS[:3]), "4 ids, 4 labels, 3 predictions"),
        (Predictions([], [], []), "0 ids, 0 labels, 0 predictions; .* at least one example"),
    ],
)
def test_runs_that_do_not_match_are_named(other, message):
    with pytest.raises(ValueError, match=f"b, rte, pre-training seed 0, fine-tuning seed 1: {message}"):
        score_runs([runs("a", ALL_RIGHT), runs("b", ALL_RIGHT, other)], [accuracy])
    with pytest.raises(ValueError, match=message):
        score_runs([runs("b", ALL_RIGHT, other), runs("b", ALL_RIGHT)], [accuracy])


def test_other_tasks_and_empty_models_are_errors():
    with pytest.raises(ValueError, match="a was run on 'rte', b on 'cola'"):
        score_runs([runs("a", ALL_RIGHT), runs("b", ALL_RIGHT, task="cola")], [accuracy])
    with pytest.raises(ValueError, match="b has no runs on rte"):
        score_runs([runs("a", ALL_RIGHT), runs("b")], [accuracy])


def test_mcnemar_describes_each_pair_of_runs():
    described = mcnemar_by_pair(runs("a", ALL_RIGHT, ONE_WRONG), runs("b", TWO_WRONG, ONE_WRONG))
    assert described == {((0, 0), (0, 0)): McNemar(2, 0, 0.5), ((0, 1), (0, 1)): McNemar(0, 0, 1.0)}
    with pytest.raises(ValueError, match="not numbers"):
        mcnemar_by_pair(runs("a", ALL_RIGHT), runs("b", Predictions(IDS, LABELS, [0.5, 0, 1, 0])))


GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "qnli", "rte", "mnli_matched", "mnli_mismatched")


def test_averages_over_tasks_are_compared_like_a_task():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=100)

    def model(name, task, ease):
        answers = [np.where(rng.random(100) < ease, labels, 1 - labels) for _ in range(6)]
        return TaskRuns(name, task, {0: {s: Predictions(range(100), labels, a) for s, a in enumerate(answers)}})

    scored = {task: score_runs([model("a", task, 0.9), model("b", task, 0.8)], [accuracy], draws=200) for task in GLUE}
    a, b = (
        combine_scores({task: pair[side] for task, pair in scored.items()}, lambda s: glue_average(s, False), "GLUE")
        for side in (0, 1)
    )
    by_hand = glue_average({task: pair[0].scores_R[3] for task, pair in scored.items()}, with_wnli=False)
    assert a.scores_R[3] == pytest.approx(by_hand)
    assert a.draws_RD.std(axis=1).mean() == pytest.approx(np.sqrt(0.9 * 0.1 / 100 / 8), rel=0.2)
    comparison = compare_scores(a, b)
    assert (comparison.task, comparison.called) == ("GLUE", True)

    lost = {task: pair[0] for task, pair in scored.items()}
    lost["rte"] = replace(lost["rte"], seeds=lost["rte"].seeds[1:])
    with pytest.raises(ValueError, match=r"rte has a with seeds .* expected the same runs in every part"):
        combine_scores(lost, glue_average, "GLUE")
