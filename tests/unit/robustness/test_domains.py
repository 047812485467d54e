"""The table of other domains, and how predictions on them are scored."""

import pytest

from sharedqkv.robustness.domains import DOMAINS, counted_records, domains_for, parse_domains, score_domain
from sharedqkv.tasks.glue import GLUE
from sharedqkv.tasks.registry import TASKS
from sharedqkv.tasks.squad import SQUAD


def record(name, label, prediction):
    return {"id": name, "label": label, "prediction": prediction}


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_the_table_fits_the_tasks(domain):
    assert set(domain.tasks) <= set(TASKS)
    assert len({len(TASKS[task].text_columns) for task in domain.tasks}) == 1
    assert domain.note
    if domain.hub:
        assert len(domain.hub.texts) in (0, len(TASKS[domain.tasks[0]].text_columns))
        classes = domain.labels or getattr(TASKS[domain.tasks[0]], "labels", ())
        assert len(domain.hub.labels) in (0, len(classes))


def test_tasks_have_their_sets():
    names = {task: {domain.name for domain in domains_for(task)} for task in TASKS}
    assert {"mnli_mismatched", "snli", "hans", "scitail", "breaking_nli", "advglue_mnli"} <= names["mnli"]
    assert {"imdb", "reviews_airline", "imdb_contrast", "imdb_counterfactual", "advglue_sst2"} <= names["sst2"]
    assert names["mrpc"] == {"paws_wiki"}
    assert names["qqp"] == {"paws_wiki", "advglue_qqp"}
    assert names["stsb"] == {"sick_similarity"}
    assert {"squad_addsent", "squad_addonesent"} <= names["squad"]
    assert names["cola"] == names["wnli"] == set()


def test_names_are_parsed():
    assert parse_domains("all") == list(DOMAINS)
    assert parse_domains(" HANS, snli ,hans") == ["hans", "snli"]


def test_named_sets_must_be_for_one_of_the_tasks():
    assert parse_domains("hans,imdb", ["sst2", "mnli"]) == ["hans", "imdb"]
    assert parse_domains("all", ["sst2"]) == list(DOMAINS)
    with pytest.raises(ValueError, match="paws_wiki is for models of mrpc or qqp, and the runs' tasks are sst2, rte"):
        parse_domains("imdb,paws_wiki", ["sst2", "rte"])


@pytest.mark.parametrize(("text", "named"), [("snli,hens", "hens"), ("", "nothing"), ("all,x", "x")])
def test_unknown_names_list_the_known(text, named):
    with pytest.raises(
        ValueError, match=f"--domains: unknown '{named}'; known: all, mnli_mismatched, .*hans"
    ) as raised:
        parse_domains(text)
    assert "adversarial_qa" in str(raised.value)


def test_neutral_and_contradiction_are_one_class_in_two_class_sets():
    # Right: entailment as such, neutral and contradiction as not-entailment. Wrong: the last two.
    labels, predictions = [0, 1, 1, 0, 1], [0, 1, 2, 2, 0]
    records = [record(number, *pair) for number, pair in enumerate(zip(labels, predictions, strict=True))]
    for name in ("hans", "scitail"):
        assert score_domain(DOMAINS[name], GLUE["mnli"], records) == {"accuracy": 0.6, "score": 0.6}
    assert score_domain(DOMAINS["snli"], GLUE["mnli"], records)["score"] == 0.4
    assert [r["prediction"] for r in records] == predictions, "records keep the model's own prediction"
    counted = counted_records(DOMAINS["hans"], GLUE["mnli"], records)
    assert [r["prediction"] for r in counted] == [0, 1, 1, 1, 0]


def test_metrics_are_those_of_the_models_task():
    records = [record(number, label, 1) for number, label in enumerate([1, 1, 0, 0])]
    assert score_domain(DOMAINS["paws_wiki"], GLUE["qqp"], records) == pytest.approx(
        {"accuracy": 1 / 2, "f1": 2 / 3, "score": 7 / 12}
    )
    records = [record(number, label, 10 * label - 3) for number, label in enumerate([1.0, 2.5, 5.0])]
    scores = score_domain(DOMAINS["sick_similarity"], GLUE["stsb"], records)
    assert scores == pytest.approx({"pearson": 1, "spearman": 1, "score": 1}), "another scale costs nothing"


def test_edited_texts_are_scored_and_pairs_told():
    domain = DOMAINS["imdb_contrast"]
    pairs = {  # original right?, edited right?
        "0": (True, True),
        "1": (True, False),
        "2": (True, False),
        "3": (False, True),
    }
    records = [record(name, 0, int(not right)) for name, (right, _) in pairs.items()]
    records += [record(f"{name}-edited", 1, int(right)) for name, (_, right) in pairs.items()]
    scores = score_domain(domain, GLUE["sst2"], records)
    assert scores == {"accuracy": 0.5, "score": 0.5, "original_score": 0.75, "both_right": 0.25}
    assert [r["id"] for r in counted_records(domain, GLUE["sst2"], records)] == list(pairs)


def test_one_alone_is_no_pair():
    records = [record("0", 1, 1), record("0-edited", 0, 1), record("1", 1, 1), record("2-edited", 0, 0)]
    assert score_domain(DOMAINS["imdb_contrast"], GLUE["sst2"], records)["both_right"] == 0


def test_without_originals_pairs_are_not_told():
    records = [record("0-edited", 1, 1), record("1-edited", 0, 1)]
    scores = score_domain(DOMAINS["imdb_counterfactual"], GLUE["sst2"], records)
    assert scores == {"accuracy": 0.5, "score": 0.5}


def test_the_worst_of_several_distractions_counts():
    anna, bob = ["Anna Meier"], ["Bob"]
    records = [
        record("a1", anna, "Anna Meier"),
        record("a1-high-conf", anna, "Anna Meier"),
        record("a1-high-conf-turk0", anna, "Meier"),
        record("b2", bob, "Bob"),
        record("c3", bob, "Carl"),
        record("c3-turk1", bob, "Bob"),
    ]
    domain, task = DOMAINS["squad_addsent"], SQUAD["squad"]
    scores = score_domain(domain, task, records)
    # F1 of "Meier" is 2/3; b2 was not distracted and counts as it is; c3's original does not count.
    assert scores["f1"] == scores["score"] == pytest.approx((2 / 3 + 1 + 1) / 3)
    assert scores["exact_match"] == pytest.approx(2 / 3)
    assert scores["original_score"] == pytest.approx(2 / 3)
    assert "both_right" not in scores
    counted = {r["id"]: r["prediction"] for r in counted_records(domain, task, records)}
    assert counted == {"a1": "Meier", "b2": "Bob", "c3": "Bob"}
    assert score_domain(DOMAINS["adversarial_qa"], task, records)["f1"] == pytest.approx((5 - 1 / 3) / 6)
