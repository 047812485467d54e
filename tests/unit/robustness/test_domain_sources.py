"""Sets of other domains are read from small files and from a hub that is made up; what is wrong is named."""

import json
from pathlib import Path

import datasets
import pytest
from finetuning_helpers import (
    make_questions,
    make_rows,
    write_jsonl,
    write_official_tsv,
    write_parquet,
    write_squad_json,
)

from sharedqkv.robustness.domain_sources import load_domain
from sharedqkv.robustness.domains import DOMAINS
from sharedqkv.tasks.glue import GLUE
from sharedqkv.tasks.registry import TASKS
from sharedqkv.tasks.sources import rows_from_hub
from sharedqkv.tasks.squad import SQUAD

GLUE_DOMAINS = [d for d in DOMAINS.values() if d.tasks[0] in GLUE and not (d.edited or d.part_of or d.foreign_to)]
REVIEWS = ["the plot was dull and long", "a warm song of old friends", "nobody needs another such sequel"]
EDITED = ["a warm song of new friends", "everybody needs another such sequel", "the plot was fine and long"]
PARTNERS = {"0": EDITED[2], "1": EDITED[0], "2": EDITED[1]}


def local_rows(domain, count=4):
    """Rows as local files hold them: the first task's columns, the domain's classes."""
    classes = len(domain.labels) or len(GLUE[domain.tasks[0]].labels)
    return [{**row, "label": row["idx"] % classes} for row in make_rows(domain.tasks[0], count)]


@pytest.mark.parametrize("domain", GLUE_DOMAINS, ids=lambda domain: domain.name)
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_files_are_read_for_every_task(domain, form, tmp_path):
    rows = local_rows(domain)
    if form == "parquet":
        write_parquet(tmp_path / "domains" / domain.name / f"{domain.split}-00000-of-00001.parquet", rows)
    else:
        write_jsonl(tmp_path / domain.name / f"{domain.split}.jsonl", rows)
    columns = GLUE[domain.tasks[0]].text_columns
    for name in domain.tasks:
        examples, counts = load_domain(domain, TASKS[name], tmp_path)
        assert [example.texts for example in examples] == [tuple(row[c] for c in columns) for row in rows]
        assert [example.label for example in examples] == [row["label"] for row in rows]
        assert [example.id for example in examples] == [0, 1, 2, 3]
        assert counts == {}


class Hub:
    """Stands for the hub: gives the rows and remembers what was asked for."""

    def __init__(self, rows):
        self.rows = rows

    def load_dataset(self, *names, **options):
        self.asked = names, options
        return datasets.Dataset.from_list(self.rows)


def hub_rows(domain, rows):
    """Local rows as the hub's copy has them: its names of columns and classes."""
    hub = domain.hub
    ours = GLUE[domain.tasks[0]].text_columns
    renamed = dict(zip(ours, hub.texts or ours, strict=True)) | {"label": hub.label}
    found = []
    for row in rows:
        label = hub.labels[row["label"]] if hub.labels else row["label"]
        found.append({renamed.get(name, name): value for name, value in {**row, "label": label}.items()})
    return found


@pytest.mark.parametrize("domain", [d for d in GLUE_DOMAINS if d.hub], ids=lambda domain: domain.name)
def test_the_hubs_copy_gives_the_same_examples(domain, tmp_path, monkeypatch):
    rows = local_rows(domain)
    write_jsonl(tmp_path / domain.name / f"{domain.split}.jsonl", rows)
    hub = Hub(hub_rows(domain, rows))
    monkeypatch.setattr(datasets, "load_dataset", hub.load_dataset)
    task = TASKS[domain.tasks[0]]
    assert load_domain(domain, task, None) == load_domain(domain, task, tmp_path)
    assert hub.asked[0][0] == domain.hub.repository
    if domain.hub.exported:
        path = f"{domain.hub.config}/{domain.hub.split}/*.parquet"
        assert hub.asked[1]["revision"] == "refs/convert/parquet"
        assert hub.asked[1]["data_files"] == {domain.hub.split: path}
    else:
        assert hub.asked == ((domain.hub.repository, domain.hub.config), {"split": domain.hub.split})


def test_only_the_asked_configuration_of_an_export_is_read(tmp_path, monkeypatch):
    # A folder stands for the repository's revision; `datasets` itself reads it.
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    for config in ("AddSent", "AddOneSent"):
        write_parquet(tmp_path / "repository" / config / "validation" / "0000.parquet", [{"id": config}])
    rows, _ = rows_from_hub(str(tmp_path / "repository"), "AddSent", "validation", exported=True)
    assert rows == [{"id": "AddSent"}]


def test_mismatched_lies_where_fine_tuning_finds_it(tmp_path):
    write_official_tsv(tmp_path, "mnli", "validation_mismatched", make_rows("mnli", 5))
    examples, _ = load_domain(DOMAINS["mnli_mismatched"], GLUE["mnli"], tmp_path)
    assert [example.label for example in examples] == [0, 1, 2, 0, 1]


def test_rows_nobody_agreed_on_are_left_out_and_counted(tmp_path):
    rows = make_rows("mnli", 4)
    rows[1]["label"] = -1
    write_jsonl(tmp_path / "snli" / "validation.jsonl", rows)
    examples, counts = load_domain(DOMAINS["snli"], GLUE["mnli"], tmp_path)
    assert [(example.id, example.label) for example in examples] == [(0, 0), (2, 2), (3, 0)]
    assert counts == {"left out: no label": 1}


def test_sentences_of_stsbs_train_are_left_out_and_counted(tmp_path):
    def pair(first, second):
        return {"sentence1": first, "sentence2": second, "label": 3.5}

    write_jsonl(tmp_path / "glue" / "stsb" / "train.jsonl", [pair("A man sings.", "A dog, asleep, dreams.")])
    rows = [pair("a man sings", "Somebody sleeps"), pair("A man swims", "A cat"), pair("One", "A dog asleep dreams")]
    write_jsonl(tmp_path / "domains" / "sick_similarity" / "test.jsonl", rows)
    examples, counts = load_domain(DOMAINS["sick_similarity"], GLUE["stsb"], tmp_path)
    assert [example.texts for example in examples] == [("A man swims", "A cat")]
    assert counts == {"left out: sentence in stsb's train": 2}


def test_the_hubs_sick_is_held_against_the_hubs_stsb(monkeypatch):
    captions = {"sentence_A": "a man sings", "sentence_B": "a dog", "label": 1, "relatedness_score": 4.5}
    hubs = {
        "RobZamp/sick": Hub([captions, {**captions, "sentence_A": "a cat"}]),
        "nyu-mll/glue": Hub([{"sentence1": "A man sings.", "sentence2": "One sings.", "label": 5.0}]),
    }
    monkeypatch.setattr(datasets, "load_dataset", lambda name, *rest, **more: hubs[name].load_dataset(name))
    examples, counts = load_domain(DOMAINS["sick_similarity"], GLUE["stsb"], None)
    assert [(example.texts, example.label) for example in examples] == [(("a cat", "a dog"), 4.5)]
    assert counts == {"left out: sentence in stsb's train": 1}


def write_pairs(folder: Path, edited=EDITED) -> Path:
    for split, texts, label in (("original", REVIEWS, 0), ("test", edited, 1)):
        rows = [{"sentence": text, "label": label, "idx": number} for number, text in enumerate(texts)]
        write_parquet(folder / f"{split}-00000-of-00001.parquet", rows)
    return folder


def test_pairs_are_found_by_their_words(tmp_path):
    write_pairs(tmp_path / "domains" / "imdb_counterfactual")
    examples, _ = load_domain(DOMAINS["imdb_counterfactual"], GLUE["sst2"], tmp_path)
    found = {example.id: (example.texts[0], example.label) for example in examples}
    assert found == {
        **{str(number): (text, 0) for number, text in enumerate(REVIEWS)},
        **{f"{number}-edited": (text, 1) for number, text in PARTNERS.items()},
    }


@pytest.mark.parametrize("edited", [EDITED[:2], [EDITED[0], EDITED[0], EDITED[1]], [*EDITED, "one more"]])
def test_pairs_that_cannot_be_told_are_an_error(edited, tmp_path):
    folder = write_pairs(tmp_path / "domains" / "imdb_contrast", edited)
    with pytest.raises(ValueError, match=f"{len(edited)} edited texts for 3 originals, and no telling") as raised:
        load_domain(DOMAINS["imdb_contrast"], GLUE["sst2"], tmp_path)
    assert str(folder / "test-00000-of-00001.parquet") in str(raised.value)


def test_missing_originals_are_named(tmp_path):
    write_jsonl(tmp_path / "imdb_contrast" / "test.jsonl", make_rows("sst2", 2))
    with pytest.raises(FileNotFoundError, match=r"no split original of imdb_contrast. Looked for original-\*\.parquet"):
        load_domain(DOMAINS["imdb_contrast"], GLUE["sst2"], tmp_path)


def test_the_hubs_edited_texts_come_without_originals(monkeypatch):
    rows = [{"Sentiment": "Positive", "Text": "fine"}, {"Sentiment": "Negative", "Text": "dull"}]
    monkeypatch.setattr(datasets, "load_dataset", Hub(rows).load_dataset)
    examples, _ = load_domain(DOMAINS["imdb_counterfactual"], GLUE["sst2"], None)
    assert [(example.id, example.texts, example.label) for example in examples] == [
        ("0-edited", ("fine",), 1),
        ("1-edited", ("dull",), 0),
    ]


@pytest.mark.parametrize("form", ["jsonl", "json"])
def test_questions_are_read_from_files(form, tmp_path):
    rows = make_questions(3)
    file = tmp_path / "domains" / "squad_addsent" / f"validation.{form}"
    (write_jsonl if form == "jsonl" else write_squad_json)(file, rows)
    assert load_domain(DOMAINS["squad_addsent"], SQUAD["squad"], tmp_path) == (SQUAD["squad"].examples(rows, ""), {})


def test_answers_in_the_hubs_stripped_contexts_are_found_again(monkeypatch):
    answers = {"text": ["Anna", "Anna wrote"], "answer_start": [6, 6]}  # before two blanks were stripped
    row = {"id": "a", "question": "who?", "context": "and Anna wrote to Anna", "answers": answers}
    monkeypatch.setattr(datasets, "load_dataset", Hub([row]).load_dataset)
    [question], _ = load_domain(DOMAINS["squad_addonesent"], SQUAD["squad"], None)
    assert question.starts == (4, 4)
    assert question.answers == ("Anna", "Anna wrote")
    lost = {**row, "answers": {"text": ["Bob"], "answer_start": [6]}}
    monkeypatch.setattr(datasets, "load_dataset", Hub([lost]).load_dataset)
    with pytest.raises(ValueError, match="answer 'Bob' does not stand"):
        load_domain(DOMAINS["squad_addonesent"], SQUAD["squad"], None)


def test_another_tasks_set_is_refused(tmp_path):
    with pytest.raises(ValueError, match="paws_wiki is for models of mrpc, qqp, not of sst2"):
        load_domain(DOMAINS["paws_wiki"], GLUE["sst2"], tmp_path)


def test_a_set_that_is_on_the_hub_only_says_so(tmp_path):
    message = r"no split validation of squad_addsent. Looked for .* Without --data .*hub: stanfordnlp/squad_adversarial"
    with pytest.raises(FileNotFoundError, match=message):
        load_domain(DOMAINS["squad_addsent"], SQUAD["squad"], tmp_path)


def test_a_set_that_is_not_on_the_hub_says_so():
    with pytest.raises(
        OSError, match=r"reviews_airline: the hub has no copy .* domains/reviews_airline/test-\*\.parquet"
    ):
        load_domain(DOMAINS["reviews_airline"], GLUE["sst2"], None)


def test_the_hub_out_of_reach_is_told():
    # Tests run offline.
    with pytest.raises(OSError, match="cannot get plain_text, split validation, of jhu-cogsci/hans from the hub"):
        load_domain(DOMAINS["hans"], GLUE["mnli"], None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"premise": None}, "row 1: premise must be text, not None"),
        ({"label": 2}, r"row 1: unknown label 2; hans has 0 \(entailment\), 1 \(not_entailment\)"),
        ({"label": None}, "row 1: unknown label None"),
    ],
)
def test_wrong_rows_are_named(change, message, tmp_path):
    file = tmp_path / "domains" / "hans" / "test.jsonl"
    write_jsonl(file, [{"premise": "a", "hypothesis": "b", "label": 0, **change}])
    with pytest.raises(ValueError, match=message) as raised:
        load_domain(DOMAINS["hans"], GLUE["mnli"], tmp_path)
    assert str(file) in str(raised.value)


@pytest.mark.parametrize("column", ["premise", "hypothesis", "label"])
def test_missing_columns_are_named(column, tmp_path):
    file = tmp_path / "domains" / "hans" / "test.jsonl"
    row = {"premise": "a", "hypothesis": "b", "label": 0, "heuristic": "overlap"}
    del row[column]
    write_jsonl(file, [row])
    with pytest.raises(
        ValueError, match=f"{column}; it has .*heuristic, expected premise, hypothesis, label"
    ) as raised:
        load_domain(DOMAINS["hans"], GLUE["mnli"], tmp_path)
    assert str(file) in str(raised.value)


def test_an_empty_set_is_named(tmp_path):
    file = tmp_path / "domains" / "hans" / "test.jsonl"
    write_jsonl(file, [])
    with pytest.raises(ValueError, match=r"hans.*the split is empty"):
        load_domain(DOMAINS["hans"], GLUE["mnli"], tmp_path)
    file.write_text(json.dumps({"premise": "a", "hypothesis": "b", "label": -1}))
    with pytest.raises(ValueError, match=r"hans.*the split is empty"):
        load_domain(DOMAINS["hans"], GLUE["mnli"], tmp_path)
