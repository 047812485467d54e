"""Who is compared with whom, and in which families."""

import dataclasses

import pytest
from report_helpers import make_info

from sharedqkv.evidence.report.collect import read_study
from sharedqkv.evidence.report.questions import against_baseline, asked, awaited, main_and_others, questions
from sharedqkv.models.specs import parse_spec
from sharedqkv.tasks.cells import write_json


@pytest.fixture
def study_of(tmp_path):
    def make(*specs, positions=("rotary",)):
        names = [f"{spec}, {position}" for position in positions for spec in specs]
        info = make_info(names, 1)
        for entrant in info["entrants"]:
            spec, entrant["position_embedding_type"] = entrant["name"].rsplit(", ", 1)
            entrant["variant"], entrant["attention_options"], entrant["model"] = parse_spec(spec)
        write_json(tmp_path / "study.json", info)
        return read_study(tmp_path)

    return make


def test_the_baseline_has_the_same_positions(study_of):
    study = study_of("standard", "shared", "standard:num_hidden_layers=7", positions=("rotary", "absolute"))
    assert study.baseline_of("shared, rotary") == "standard, rotary"
    assert study.baseline_of("shared, absolute") == "standard, absolute"
    assert study.baseline_of("standard:num_hidden_layers=7, absolute") == "standard, absolute"
    assert study.baseline_of("standard, rotary") is None
    assert study.baseline_of("standard, absolute") == "standard, rotary"
    assert study.baselines == ["standard, rotary", "standard, absolute"]


def test_the_baseline_has_the_same_other_options_where_there_is_such_a_one(study_of):
    study = study_of("standard", "shared", "standard:norm_placement=pre", "shared:norm_placement=pre")
    assert study.baseline_of("shared:norm_placement=pre, rotary") == "standard:norm_placement=pre, rotary"
    assert study.baseline_of("shared, rotary") == "standard, rotary"
    assert study.baseline_of("standard:norm_placement=pre, rotary") == "standard, rotary"


def test_a_sister_with_other_attention_options_is_no_baseline(study_of):
    study = study_of("shared", "shared:bias=true", positions=("rotary", "absolute"))
    assert study.baseline_of("shared, absolute") == "shared, rotary"
    assert study.baseline_of("shared:bias=true, absolute") == "shared, absolute"


def test_each_kind_of_positions_is_a_family(study_of):
    study = study_of("standard", "shared", "tied", positions=("rotary", "absolute"))
    assert against_baseline(study) == [
        [("shared, rotary", "standard, rotary"), ("tied, rotary", "standard, rotary")],
        [("standard, absolute", "standard, rotary")],
        [("shared, absolute", "standard, absolute"), ("tied, absolute", "standard, absolute")],
    ]


def test_the_main_question_is_corrected_alone(study_of):
    study = study_of("standard", "shared", "tied", positions=("rotary", "absolute"))
    assert main_and_others(study) == [
        [("shared, rotary", "standard, rotary")],
        [("tied, rotary", "standard, rotary")],
        [("standard, absolute", "standard, rotary")],
        [("shared, absolute", "standard, absolute"), ("tied, absolute", "standard, absolute")],
    ]
    assert main_and_others(study_of("standard", "tied")) == [[("tied, rotary", "standard, rotary")]]


def test_what_is_planned_and_not_there_yet_is_awaited(study_of):
    study = study_of("standard", "shared", "tied", "narrow")
    [family] = against_baseline(study)
    study.info["cells"] = {
        f"pretrain/{entrant.slug}/{seed}": {"state": "pending"}
        for entrant in study.entrants
        for seed in range(1 if entrant.variant == "tied" else 3)  # it can never be tested
    }
    now = {"standard, rotary": 3, "shared, rotary": 2, "narrow, rotary": 1, "tied, rotary": 1}
    assert awaited(study, family, now) == 1
    assert awaited(study, family, {**now, "narrow, rotary": 2}) == 0
    assert awaited(study, family, {}) == 2


def test_the_main_question_comes_first_and_nothing_is_asked_twice(study_of):
    study = study_of("standard", "shared", "narrow", "symmetric", positions=("rotary", "absolute"))
    families = questions(study, main_rivals=("narrow",))
    assert families[0] == [("shared, rotary", "standard, rotary"), ("shared, rotary", "narrow, rotary")]
    assert families[1] == [
        ("narrow, rotary", "standard, rotary"),
        ("symmetric, rotary", "standard, rotary"),
        ("shared, rotary", "symmetric, rotary"),
    ]
    assert ("shared, absolute", "narrow, absolute") in families[3]
    pairs = [pair for family in families for pair in family]
    assert len(set(pairs)) == len(pairs)


def test_a_rival_that_is_the_baseline_is_not_asked_about_twice(study_of):
    assert questions(study_of("narrow", "shared"), main_rivals=("narrow",)) == [[("shared, rotary", "narrow, rotary")]]


def test_one_model_alone_is_no_question(study_of):
    assert questions(study_of("standard")) == []


def test_a_study_can_ask_more(study_of):
    study = study_of("standard", "shared", "narrow", "grouped", positions=("rotary", "absolute"))
    before = questions(study)
    study.info["study"] = {"questions": [{"model": "grouped", "against": ["narrow", "standard"]}]}
    more = questions(study)[len(before) :]
    assert more == [[("grouped, rotary", "narrow, rotary")], [("grouped, absolute", "narrow, absolute")]]


def test_nothing_is_asked_twice_the_other_way_round_or_in_two_lists(study_of):
    study = study_of("standard", "shared", "narrow", "grouped")
    before = questions(study)
    study.info["study"] = {
        "questions": [
            {"model": "standard", "against": ["shared"]},
            {"model": "grouped", "against": ["narrow"]},
            {"model": "narrow", "against": ["grouped"]},
        ]
    }
    assert questions(study)[len(before) :] == [[("grouped, rotary", "narrow, rotary")]]


def test_models_that_name_their_own_positions_are_compared_across_them(study_of):
    study = study_of("standard", "shared")
    study.entrants[:] = [
        dataclasses.replace(entrant, name=entrant.spec, position_embedding_type=positions)
        for entrant, positions in zip(study.entrants, ("absolute", "rotary"), strict=True)
    ]
    study.info["study"] = {"questions": [{"model": "shared", "against": ["standard"]}]}
    assert asked(study) == [[("shared", "standard")]]
