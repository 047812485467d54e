"""What the table of scores says about itself."""

import dataclasses

import pytest

from sharedqkv.evidence.report.measures import only
from sharedqkv.evidence.report.sections.tasks import tasks_section


def note_with_one_seed_of(measures, models):
    averages = {
        model: only(scores, scores.seeds[:1]) if model in models else scores
        for model, scores in measures.quality.averages().items()
    }
    scores = {**measures.quality.scores, measures.quality.average: averages}
    quality = dataclasses.replace(measures.quality, scores=scores, by_task={}, on_average={})
    return tasks_section(dataclasses.replace(measures, quality=quality), {}).blocks[1].text


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ((), None),
        (("narrow",), "± is between pre-training seeds; of `narrow`, with one, between fine-tuning seeds."),
        (("standard", "shared", "narrow"), "± is between fine-tuning seeds of one checkpoint."),
    ],
)
def test_which_seeds_a_deviation_is_between(models, words, measures):
    note = note_with_one_seed_of(measures, models)
    assert (words in note) if words else ("±" not in note)
