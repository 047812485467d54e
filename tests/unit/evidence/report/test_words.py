"""The summary says what the data say, and numbers read well."""

import dataclasses
import re
import shutil

import pytest
from report_helpers import make_info, make_pretraining, make_study

from sharedqkv.evidence.report.collect import read_study
from sharedqkv.evidence.report.measures import measure
from sharedqkv.evidence.report.words import counted, number, p_value, points, rounded, several, signed, summary
from sharedqkv.evidence.report.write import build_report
from sharedqkv.tasks.cells import write_json


def text_of(measures):
    return "\n".join(paragraph.text for paragraph in summary(measures)).replace("\N{NO-BREAK SPACE}", " ")


def test_the_summary_of_clear_results(measures):
    text = text_of(measures)
    assert "`standard`, `shared` and `narrow` were pre-trained with 5 seeds on 300 k tokens each" in text
    assert "fine-tuned on 3 tasks. All are compared with `standard`" in text
    assert "the tests call `shared` worse and show no difference for `narrow`" in text
    assert "Against `standard`, `shared` scores −17.3 points (95 % interval −20.6 to −14.1), p = 0.0079." in text
    assert "ends 0.200 nats higher (1.490 against 1.290)" in text
    assert "`shared` has 15.8 % fewer parameters than `standard` (21.9 k against 26.0 k)" in text
    assert "The control that counts is `narrow`" in text
    assert "worse on sst2 → mean of all domains" in text
    assert "differences under about" in text


def test_what_depends_on_the_clock_is_marked(measures):
    [timed] = [paragraph for paragraph in summary(measures) if paragraph.timed]
    assert timed.text.startswith("Its training step takes 4.0")
    slower = {"shared": dataclasses.replace(measures.time_saved["shared"], median=-0.07)}
    assert "takes 7.0 % more time" in text_of(dataclasses.replace(measures, time_saved=slower))


def test_few_seeds_are_called_too_few(tmp_path):
    folder = make_study(tmp_path, {"standard": 0.9, "shared": 0.6}, seeds=2, finetune_seeds=1, examples=40)
    text = text_of(measure(read_study(folder)))
    assert "the tests" not in text
    assert "more than chance: 2 pre-training seeds of each can call nothing" in text
    assert "examples only" not in text
    assert "tell `shared` and `standard` apart nowhere: there are too few seeds" in text


def test_without_tasks_the_limits_are_those_of_the_losses(tmp_path):
    info = make_info(["standard", "shared", "narrow"], 3)
    for entrant in info["entrants"]:
        for seed in range(1 if entrant["name"] == "narrow" else 3):
            loss = 2.0 + 0.01 * seed + 0.5 * (entrant["name"] == "shared")
            make_pretraining(tmp_path / "pretrain" / entrant["slug"] / str(seed), entrant["variant"], seed, loss)
    write_json(tmp_path / "study.json", info)
    text = text_of(measure(read_study(tmp_path)))
    assert "which differences are more than chance: 3 pre-training seeds of each can call nothing" in text
    assert "how far `narrow` would differ with another seed" in text


def test_a_loss_that_would_mostly_be_missed_is_told_in_nats(tmp_path):
    info = make_info(["standard", "shared"], 5)
    for entrant in info["entrants"]:
        for seed in range(5):
            loss = 2.0 + 0.01 * seed + 0.5 * (entrant["name"] == "shared")
            make_pretraining(tmp_path / "pretrain" / entrant["slug"] / str(seed), entrant["variant"], seed, loss)
    write_json(tmp_path / "study.json", info)
    text = text_of(measure(read_study(tmp_path)))
    assert re.search(
        r"differences under about 0\.0\d\d nats, which 5 pre-training seeds of each would mostly miss", text
    )
    assert "another seed" not in text


def test_an_interval_without_seeds_is_called_one_over_examples(tmp_path):
    folder = make_study(tmp_path, {"standard": 0.9, "shared": 0.6}, seeds=1, finetune_seeds=1, examples=40)
    page = build_report(folder).read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    told = text_of(measure(read_study(folder)))
    assert re.search(r"`shared` scores −\d+\.\d points \(95 % interval [−\d. to]+, over examples only\)\.", told)
    assert "1 fine-tuning seed of each can call nothing" in told
    assert "bars: 95 % intervals over examples, and over seeds where there are several of each" in page
    assert "With a single seed of each the interval is over examples only" in page
    assert "± is between" not in page


def test_one_pretraining_speaks_of_checkpoints(tmp_path):
    folder = make_study(tmp_path, {"standard": 0.9, "shared": 0.6}, seeds=1, finetune_seeds=6, examples=40)
    assert "not just for these checkpoints" in text_of(measure(read_study(folder)))


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999"), (21_864, "21.9 k"), (1_234_567, "1.23 M"), (109_514_298, "110 M"), (3_300_000_000, "3.30 G")],
)
def test_rounded(count, text):
    assert rounded(count).replace("\N{NO-BREAK SPACE}", " ") == text


def test_numbers():
    assert (number(-0.04, 1), number(-1.26, 1), points(0.8412)) == ("0.0", "−1.3", "84.1")
    assert (signed("1.0"), signed("−1.0")) == ("+1.0", "−1.0")
    assert (several(["a"]), several(["a", "b", "c"])) == ("a", "a, b and c")
    assert (counted(1, "seed"), counted(3, "seed")) == ("1 seed", "3 seeds")
    assert p_value(0.0001).split() == ["p", "<", "0.001"]


def test_what_nobody_learned_and_what_everybody_knows_is_said(measures):
    quality = measures.quality
    task = quality.tasks[0]
    assert "best constant answer" not in text_of(measures)
    assert "at the ceiling" not in text_of(measures)
    best = max(scores.scores_R.mean() for scores in quality.scores[task].values())
    as_good = dataclasses.replace(quality, chance={**quality.chance, task: best})
    text = text_of(dataclasses.replace(measures, quality=as_good))
    assert f"On `{task}` no model is above the best constant answer by more than half a point." in text
    all_right = {
        model: dataclasses.replace(scores, scores_R=scores.scores_R * 0 + 1)
        for model, scores in quality.scores[task].items()
    }
    solved = dataclasses.replace(quality, scores={**quality.scores, task: all_right})
    assert f"On `{task}` all models are at the ceiling" in text_of(dataclasses.replace(measures, quality=solved))


def test_what_is_not_pretrained_yet_is_not_counted_as_done(tmp_path):
    names = ["standard", "shared", "narrow", "tied"]
    for variant, seeds in (("standard", 3), ("shared", 2)):
        for seed in range(seeds):
            make_pretraining(tmp_path / "pretrain" / variant / str(seed), variant, seed, 2.0)
    write_json(tmp_path / "study.json", {**make_info(names, 3), "state": "running"})
    text = text_of(measure(read_study(tmp_path)))
    assert "2 of 4 models were pre-trained so far (`standard` and `shared`), with 2 to 3 seeds on 300 k tokens" in text
    write_json(tmp_path / "study.json", {**make_info(names, 3), "state": "failed"})
    assert "2 of 4 models were pre-trained (`standard` and `shared`), with" in text_of(measure(read_study(tmp_path)))
    shutil.rmtree(tmp_path / "pretrain" / "shared")
    assert "1 of 4 models was pre-trained (`standard`), with 3 seeds" in text_of(measure(read_study(tmp_path)))


def test_a_studys_own_questions_are_answered(study_folder):
    study = read_study(study_folder)
    assert "Asked besides" not in text_of(measure(study))
    study.info["study"] = {"questions": [{"model": "narrow", "against": ["shared"]}]}
    text = text_of(measure(study))
    assert "Asked besides: " not in text, "shared against narrow is answered already"
    study.info["study"] = {"questions": [{"model": "shared", "against": ["narrow"]}]}
    assert "Asked besides: the loss of `shared` ends 0.1" in text_of(measure(study))
