"""What the table of scores says about itself."""

import dataclasses

import pytest

from sharedqkv.evidence.report.measures import only
from sharedqkv.evidence.report.sections.tasks import tasks_section


def note(measures, change):
    averages = {model: change(model, scores) for model, scores in measures.quality.averages().items()}
    scores = {**measures.quality.scores, measures.quality.average: averages}
    quality = dataclasses.replace(measures.quality, scores=scores, by_task={}, on_average={})
    return tasks_section(dataclasses.replace(measures, quality=quality), {}).blocks[1].text


def of_one_checkpoint(scores):
    return dataclasses.replace(scores, seeds=tuple((0, number) for number in range(len(scores.seeds))))


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ((), None),
        (("narrow",), "± is between pre-training seeds; of `narrow`, with one, between fine-tuning seeds."),
        (("standard", "shared", "narrow"), "± is between fine-tuning seeds of one checkpoint."),
    ],
)
def test_which_seeds_a_deviation_is_between(models, words, measures):
    told = note(measures, lambda model, scores: of_one_checkpoint(scores) if model in models else scores)
    assert (words in told) if words else ("±" not in told)


def test_there_is_no_deviation_between_single_runs(measures):
    assert "±" not in note(measures, lambda model, scores: only(scores, scores.seeds[:1]))
