"""The best constant answer, for each kind of score."""

import pytest

from sharedqkv.robustness.chance import chance
from sharedqkv.robustness.domains import DOMAINS, score_domain
from sharedqkv.tasks.registry import TASKS


def level(task, labels, predictions=None, domain=None):
    """Chance of a task, or of a model of this task on another domain."""
    predictions = predictions or labels
    records = [
        {"id": str(number), "label": label, "prediction": prediction, "scores": {"text": "", "null_odds": 0.0}}
        for number, (label, prediction) in enumerate(zip(labels, predictions, strict=True))
    ]
    definition = TASKS[task]

    def score(records):
        if domain:
            return score_domain(DOMAINS[domain], definition, records)["score"]
        return definition.score(definition.validation[0], records)["score"]

    return chance(score, records, len(getattr(definition, "labels", ())))


def test_accuracy_is_the_largest_class():
    assert level("sst2", [0, 1, 1, 1]) == 0.75
    assert level("mnli", [0, 1, 2, 2, 2]) == 0.6


def test_it_does_not_depend_on_the_predictions():
    assert level("sst2", [0, 1, 1, 1], [0, 0, 0, 0]) == level("sst2", [0, 1, 1, 1])


def test_accuracy_and_f1_are_weighed_together():
    # Always 1: accuracy 0.25, F1 0.4. Always 0: accuracy 0.75, F1 0.
    assert level("qqp", [0, 0, 0, 1]) == pytest.approx(0.375)
    # Always 1 is better here: accuracy 0.5, F1 2/3.
    assert level("mrpc", [0, 0, 1, 1]) == pytest.approx(7 / 12)


def test_matthews_and_correlations_have_none():
    assert level("cola", [0, 1, 1, 1]) == 0
    assert level("stsb", [0.0, 2.5, 5.0]) == 0


def test_no_answer_earns_the_unanswerable():
    assert level("squad", [["Anna"], ["Bob"]]) == 0
    assert level("squad_v2", [["Anna"], [], [], []]) == 0.75


def test_classes_that_count_together():
    assert level("mnli", [0, 0, 1, 1, 1], domain="hans") == 0.6
    assert level("mnli", [0, 0, 0, 1, 1], domain="hans") == 0.6


def test_nothing_to_score_is_an_error():
    with pytest.raises(ValueError, match="the split is empty"):
        chance(lambda records: 0.0, [], 2)
