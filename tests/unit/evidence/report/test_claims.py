"""Verdicts on the paper's claims, from what is planted."""

import dataclasses
import shutil

import pytest
from report_helpers import make_study

from sharedqkv.evidence.report.claims import _rests_on, claims_table, findings, judge, together
from sharedqkv.evidence.report.collect import read_study
from sharedqkv.evidence.report.measures import Saving, measure, only


def finding_on(measures, start):
    [finding] = [finding for finding in findings(measures) if finding.claim.startswith(start)]
    return finding


def test_parameters_are_counted(measures):
    block, model = finding_on(measures, "66.53 %"), finding_on(measures, "12.94 %")
    assert (block.verdict, model.verdict) == ("holds", "holds")
    assert block.measured.startswith("66.54 % in BERT-base; 64.6")
    assert "12.93% of the whole model" in model.rests_on


def test_a_planted_disadvantage_refutes(measures):
    over_standard = finding_on(measures, "GLUE: 0.38 points over `standard`")
    assert over_standard.verdict == "does not hold"
    assert over_standard.measured.startswith("−17.3 points")
    rests_on = "5 pre-training seeds of each, 5 and 5 fine-tuned models; p can fall to 0.0079; a difference of "
    assert over_standard.rests_on.startswith(rests_on)
    assert " points would have been found 4 times in 5; " in over_standard.rests_on
    assert finding_on(measures, "Not in the paper").verdict == "does not hold"
    assert finding_on(measures, "Out of domain").verdict == "does not hold"


def test_unlike_numbers_of_seeds_are_told_and_why_they_are_too_few(measures):
    c = dataclasses.replace(
        measures.quality.on_average["shared", "standard"], units_a=5, units_b=2, family=4, smallest_p_corrected=0.19
    )
    quality = dataclasses.replace(measures.quality, on_average={("shared", "standard"): c})
    told = finding_on(dataclasses.replace(measures, quality=quality), "GLUE: 0.38").rests_on
    few = "5 and 2 pre-training seeds, 5 and 5 fine-tuned models; too few for any test: p cannot fall below 0.19 over 4"
    assert told == f"{few} comparisons; `acceptability` and `sst2`."


def test_what_several_comparisons_rest_on_is_told_once_where_it_is_the_same(measures):
    c = measures.quality.on_average["shared", "standard"]
    fewer = dataclasses.replace(c, units_b=3, smallest_difference=None)
    same, other = _rests_on({"cola": c, "sst2": c}), _rests_on({"cola": c, "sst2": fewer})
    assert same == _rests_on({"": c})
    assert "cola: 5 pre-training seeds of each, 5 and 5 fine-tuned models; sst2: 5 and 3 pre-training seeds" in other
    assert other.count("p can fall to 0.0079;") == 1
    assert other.endswith("; sst2: a difference could be called only after that of another comparison")


def test_a_decline_on_questions_is_what_the_paper_says(measures):
    finding = finding_on(measures, "SQuAD")
    assert (finding.verdict, finding.measured.startswith("`span_qa`: −")) == ("holds", True)


def test_questions_alone_tell_nothing_of_glue(tmp_path):
    folder = make_study(tmp_path, {"standard": 0.9, "shared": 0.6}, seeds=5, finetune_seeds=1, examples=40)
    for task in ("acceptability", "sst2"):
        for cells in folder.glob(f"finetune/*/*/cells/{task}"):
            shutil.rmtree(cells)
    measures = measure(read_study(folder))
    assert (measures.quality.average, measures.quality.by_task) == ("span_qa", {})
    glue, squad = finding_on(measures, "GLUE: 0.38"), finding_on(measures, "SQuAD")
    assert (glue.verdict, glue.rests_on) == ("not tested here", "No task of this kind in this study.")
    assert (squad.verdict, squad.measured.startswith("`span_qa`: −")) == ("holds", True)


def test_variants_that_are_not_there_are_not_tested(measures):
    assert finding_on(measures, "GLUE: 5.81 points over `symmetric`").verdict == "not tested here"
    assert finding_on(measures, "GLUE: 1.06 points over `pairwise`").verdict == "not tested here"


def test_one_seed_against_several_is_told_without_a_verdict(measures):
    averages = dict(measures.quality.averages())
    several, first = averages["narrow"], averages["narrow"].seeds[0]
    averages["narrow"] = only(several, [first])
    scores = {**measures.quality.scores, measures.quality.average: averages}
    quality = dataclasses.replace(measures.quality, scores=scores, on_average={})
    finding = finding_on(dataclasses.replace(measures, quality=quality), "Not in the paper")
    lower = 100 * (averages["shared"].scores_R.mean() - several.scores_R[0])
    assert (finding.verdict, finding.measured) == ("cannot be told", f"−{-lower:.1f} points")
    assert finding.rests_on.startswith("5 pre-training seeds of `shared` and 1 of `narrow`")


def test_models_that_the_study_does_not_compare_are_not_tested(measures):
    """As `standard` where it is not the baseline."""
    quality = dataclasses.replace(measures.quality, on_average={})
    finding = finding_on(dataclasses.replace(measures, quality=quality), "GLUE: 0.38")
    assert (finding.verdict, finding.rests_on) == ("not tested here", "These two are not compared in this study.")


@pytest.mark.parametrize(
    ("saving", "verdict"),
    [
        (Saving(0.12, 0.08, 0.15), "holds"),
        (Saving(0.02, -0.01, 0.04), "does not hold"),
        (Saving(0.08, 0.01, 0.15), "cannot be told"),
    ],
)
def test_time_is_judged_by_its_range(saving, verdict, measures):
    finding = finding_on(dataclasses.replace(measures, time_saved={"shared": saving}), "Training takes")
    assert (finding.verdict, finding.timed) == (verdict, True)


def test_time_that_was_not_measured_is_not_tested(measures):
    finding = finding_on(dataclasses.replace(measures, time_saved={}), "Training takes")
    assert (finding.verdict, finding.timed) == ("not tested here", False)


@pytest.mark.parametrize(
    ("difference", "interval", "p", "smallest_p", "claimed", "verdict"),
    [
        (0.02, (0.01, 0.03), 0.01, 0.01, 0.0038, "holds"),
        (-0.02, (-0.03, -0.01), 0.01, 0.01, 0.0038, "does not hold"),
        (0.001, (-0.002, 0.003), 0.4, 0.01, 0.0038, "does not hold"),  # the claimed figure is ruled out
        (0.001, (-0.002, 0.003), 0.4, 0.01, None, "cannot be told"),
        (0.001, (-0.02, 0.03), 0.4, 0.01, 0.0038, "cannot be told"),
        (-0.05, (-0.06, -0.04), 0.5, 0.5, 0.0038, "cannot be told"),  # too few seeds for any test
    ],
)
def test_judge(difference, interval, p, smallest_p, claimed, verdict, measures):
    c = dataclasses.replace(
        measures.quality.on_average["shared", "standard"],
        difference=difference,
        interval=interval,
        p_corrected=p,
        smallest_p_corrected=smallest_p,
    )
    assert judge(c, claimed) == verdict


def test_a_general_claim_must_hold_everywhere():
    assert together(["holds", "holds"]) == "holds"
    assert together(["holds", "cannot be told"]) == "cannot be told"
    assert together(["holds", "cannot be told", "does not hold"]) == "does not hold"


def test_the_table_keeps_timed_claims_out_of_csv(measures):
    table = claims_table(measures)
    assert len(table.rows) == len(table.records) + 1
    assert not any("Training takes" in record["claim"] for record in table.records)
