"""The numbers behind a report, from planted scores."""

import shutil

import numpy as np
import pytest
from report_helpers import TASKS, make_finetuning, make_info, make_pretraining, make_study

from sharedqkv.evidence.report.bench import Timing
from sharedqkv.evidence.report.collect import read_study
from sharedqkv.evidence.report.measures import (
    _averaging,
    measure,
    measure_quality,
    measure_robustness,
    time_saved,
    unit_scores,
)
from sharedqkv.evidence.runs import RunScores
from sharedqkv.tasks.cells import write_json
from sharedqkv.tasks.metrics import GLUE_METRICS


def test_planted_scores_come_out(measures):
    quality = measures.quality
    assert quality.tasks == list(TASKS)
    for model, right in (("standard", 0.95), ("shared", 0.75), ("narrow", 0.94)):
        assert quality.averages()[model].scores_R.mean() == pytest.approx(right, abs=0.03)
    assert quality.chance == {"acceptability": 0.5, "sst2": 0.5, "span_qa": 0.0}


def test_the_average_is_that_of_the_tasks_without_questions(measures):
    quality = measures.quality
    assert (quality.average, quality.averaged) == ("average without span_qa", ["acceptability", "sst2"])
    by_task = [quality.scores[task]["shared"].scores_R for task in quality.averaged]
    assert quality.averages()["shared"].scores_R == pytest.approx(np.mean(by_task, axis=0))


def test_what_is_planted_is_called_and_what_is_not_is_not(measures):
    main = measures.quality.on_average
    assert list(main) == [("shared", "standard"), ("narrow", "standard"), ("shared", "narrow")]
    assert [c.called for c in main.values()] == [True, False, True]
    assert main["shared", "standard"].difference == pytest.approx(-0.2, abs=0.03)


def test_families_and_units(measures):
    main = measures.quality.on_average
    assert [c.family for c in main.values()] == [1, 2, 2], "the main question stands alone"
    assert {c.family for c in measures.quality.by_task.values()} == {2 * len(TASKS)}
    for c in (*main.values(), *measures.quality.by_task.values()):
        assert (c.unit, c.units_a, c.paired) == ("pre-training seed", 5, False)


def test_losses_are_compared_over_seeds(measures):
    assert list(measures.losses) == [("shared", "standard"), ("shared", "narrow"), ("narrow", "standard")]
    c = measures.losses["shared", "standard"]
    assert c.difference == pytest.approx(0.2)
    assert (c.units_a, c.family, c.called) == (5, 2, True)
    c = measures.losses["narrow", "standard"]
    assert (c.family, c.called) == (1, False)


def test_losses_are_compared_with_those_of_the_same_positions(tmp_path):
    """Rotary models are 1 nat better than learned positions make them, and that is no merit of a variant."""
    names = [f"{variant}, {positions}" for positions in ("absolute", "rotary") for variant in ("standard", "shared")]
    info = make_info(names, 4)
    for entrant in info["entrants"]:
        entrant["variant"], entrant["position_embedding_type"] = entrant["name"].split(", ")
        for seed in range(4):
            loss = 3.0 - ("rotary" in entrant["name"]) + 0.1 * ("shared" in entrant["name"]) + 0.001 * seed
            make_pretraining(tmp_path / "pretrain" / entrant["slug"] / str(seed), entrant["variant"], seed, loss)
    write_json(tmp_path / "study.json", info)
    losses = measure(read_study(tmp_path)).losses
    assert {pair: round(c.difference, 6) for pair, c in losses.items()} == {
        ("shared, absolute", "standard, absolute"): 0.1,
        ("standard, rotary", "standard, absolute"): -1.0,
        ("shared, rotary", "standard, rotary"): 0.1,
    }
    assert all(c.called and c.family == 1 for c in losses.values()), "each is a question of its own"


def test_what_a_study_asks_besides_is_a_family_of_its_own(tmp_path):
    info = make_info(["standard", "shared", "grouped", "low_rank"], 4)
    info["study"] = {"questions": [{"model": "low_rank", "against": ["shared", "grouped"]}]}
    for place, entrant in enumerate(info["entrants"]):
        for seed in range(4):
            loss = 3.0 + 0.1 * place + 0.001 * seed
            make_pretraining(tmp_path / "pretrain" / entrant["slug"] / str(seed), entrant["variant"], seed, loss)
    write_json(tmp_path / "study.json", info)
    losses = measure(read_study(tmp_path)).losses
    asked = {pair: c for pair, c in losses.items() if pair[0] == "low_rank" and pair[1] != "standard"}
    assert {pair[1]: round(c.difference, 6) for pair, c in asked.items()} == {"shared": 0.2, "grouped": 0.1}
    for c in asked.values():
        assert (c.family, c.p_corrected) == (2, pytest.approx(2 * c.p))


def test_costs_are_those_of_the_models(measures):
    standard, shared = (measures.costs[name].parameters for name in ("standard", "shared"))
    assert (standard.qkv, shared.qkv) == (3 * (32 * 32 + 32), 32 * 32 + 3 * 32)
    assert measures.costs["shared"].flops_per_token < measures.costs["standard"].flops_per_token
    assert measures.costs["shared"].length == 32


def test_time_is_compared_repeat_by_repeat():
    saving = time_saved(Timing([8.0, 9.0, 18.0], [], None), Timing([10.0, 10.0, 20.0], [], None))
    assert (saving.median, saving.low, saving.high) == pytest.approx((0.1, 0.1, 0.2))


def test_robustness_knows_all_models(measures):
    analysis = measures.robustness.analysis
    assert analysis.models == ["standard", "shared", "narrow"]
    assert {curve.noise for curve in analysis.curves} == {"keyboard", "gaussian"}
    assert {score.domain for score in analysis.domains} == {"imdb", "yelp"}
    assert not any(claim.comparison.paired for claim in analysis.claims)


def test_plus_minus_is_between_pretraining_seeds():
    scores = np.array([0.6, 0.8, 0.9, 0.9])
    several = RunScores("m", "t", 1, ((0, 0), (0, 1), (1, 0), (1, 1)), scores, scores[:, None])
    assert unit_scores(several).tolist() == pytest.approx([0.7, 0.9])
    one = RunScores("m", "t", 1, ((0, 0), (0, 1), (0, 2), (0, 3)), scores, scores[:, None])
    assert unit_scores(one).tolist() == scores.tolist()


def test_glue_has_its_own_average():
    assert _averaging(list(GLUE_METRICS))[0] == "GLUE average"
    name, tasks, _ = _averaging([*(task for task in GLUE_METRICS if task != "wnli"), "squad"])
    assert (name, "squad" in tasks) == ("GLUE average without WNLI", False)
    assert _averaging(["cola", "rte"])[:2] == ("average", ["cola", "rte"])


def test_squad_and_its_kin_are_no_part_of_an_average_with_other_tasks():
    name, tasks, combine = _averaging(["squad", "qnli", "mnli_matched", "mnli_mismatched"])
    assert (name, tasks) == ("average without squad", ["qnli", "mnli_matched", "mnli_mismatched"])
    assert combine({"qnli": 0.9, "mnli_matched": 0.5, "mnli_mismatched": 0.7}) == pytest.approx(0.75)
    assert _averaging(["squad", "cola", "span_qa"])[:2] == ("average without squad, span_qa", ["cola"])
    assert _averaging(["squad"])[:2] == ("average", ["squad"])
    assert _averaging(["squad", "squad_v2"])[:2] == ("average", ["squad", "squad_v2"])


@pytest.fixture
def small_study(tmp_path):
    return make_study(tmp_path / "study", {"standard": 0.9, "shared": 0.8}, seeds=2, finetune_seeds=1, examples=40)


def test_a_model_without_a_task_has_no_average(small_study):
    for seed in "01":
        shutil.rmtree(small_study / "finetune" / "shared" / seed / "cells" / "sst2")
    quality = measure_quality(read_study(small_study))
    assert set(quality.scores["sst2"]) == set(quality.averages()) == {"standard"}
    assert set(quality.scores["span_qa"]) == {"standard", "shared"}


def test_the_average_takes_runs_that_have_all_tasks(small_study):
    shutil.rmtree(small_study / "finetune" / "shared" / "1" / "cells" / "sst2")
    quality = measure_quality(read_study(small_study))
    assert quality.averages()["shared"].seeds == ((0, 0),)
    assert "from a single one the spread is unknown" in quality.problems["shared against standard"]


def test_a_damaged_task_is_told(small_study):
    (small_study / "finetune" / "shared" / "0" / "predictions" / "sst2" / "validation" / "0.jsonl").write_text("{")
    quality = measure_quality(read_study(small_study))
    assert (quality.average, quality.tasks) == ("acceptability", ["span_qa"])
    assert quality.problems["sst2"].startswith("finetune/shared/0/predictions/sst2/validation/0.jsonl is damaged")


def test_runs_that_were_not_tried_are_left_out_and_told(small_study):
    shutil.rmtree(small_study / "finetune" / "shared" / "1" / "robustness")
    robustness = measure_robustness(read_study(small_study))
    assert robustness.analysis.models == ["standard", "shared"]
    assert robustness.problems == {"shared, seed 1": "not tried: it is left out here"}
    shutil.rmtree(small_study / "finetune" / "shared" / "0" / "robustness")
    assert measure_robustness(read_study(small_study)).analysis.models == ["standard"]


def test_one_task_is_its_own_average(tmp_path):
    write_json(tmp_path / "study.json", make_info(["standard", "shared"], 2))
    for number, variant in enumerate(("standard", "shared")):
        for seed in range(2):
            run = tmp_path / "finetune" / variant / str(seed)
            make_finetuning(run, 0.9, 10 * number + seed, seeds=1, examples=40)
            for task in TASKS[1:]:
                shutil.rmtree(run / "cells" / task)
    quality = measure_quality(read_study(tmp_path))
    assert (quality.average, quality.tasks) == ("acceptability", [])
    assert list(quality.on_average) == [("shared", "standard")]


def test_an_empty_study_measures_nothing(tmp_path):
    write_json(tmp_path / "study.json", make_info(["standard"], 1))
    measures = measure(read_study(tmp_path))
    assert (measures.quality.scores, measures.losses, measures.costs, measures.time_saved) == ({}, {}, {}, {})
    assert measures.robustness.analysis is None


def test_robustness_is_compared_with_the_baseline_of_the_same_positions(tmp_path):
    names = [f"{variant}, {positions}" for positions in ("absolute", "rotary") for variant in ("standard", "shared")]
    info = {**make_info(names, 2), "noises": ["gaussian"], "domains": []}
    for number, entrant in enumerate(info["entrants"]):
        entrant["variant"], entrant["position_embedding_type"] = entrant["name"].split(", ")
        for seed in range(2):
            folder = tmp_path / "finetune" / entrant["slug"] / str(seed)
            make_finetuning(folder, 0.9, 10 * number + seed, seeds=1, examples=40)
    write_json(tmp_path / "study.json", info)
    claims = measure_robustness(read_study(tmp_path)).analysis.claims
    assert {(claim.comparison.model_a, claim.comparison.model_b) for claim in claims} == {
        ("shared, absolute", "standard, absolute"),
        ("standard, rotary", "standard, absolute"),
        ("shared, rotary", "standard, rotary"),
    }
    assert {claim.comparison.family for claim in claims} == {len(TASKS)}, "each is a question of its own"
