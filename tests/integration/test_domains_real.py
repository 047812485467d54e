"""The real sets of other domains: read, counted, paired."""

import os
from pathlib import Path

import pytest

from sharedqkv.robustness.chance import chance
from sharedqkv.robustness.domain_sources import load_domain
from sharedqkv.robustness.domains import DOMAINS, score_domain
from sharedqkv.tasks.glue import GLUE
from sharedqkv.tasks.sources import rows_from_folders
from sharedqkv.tasks.task import Split

pytestmark = pytest.mark.real_data


@pytest.fixture(scope="module")
def data() -> Path:
    folder = os.environ.get("SHAREDQKV_DATA")
    if not folder:
        pytest.skip("SHAREDQKV_DATA names no folder with glue/ and domains/")
    return Path(folder)


def load(name: str, data: Path, task: str | None = None):
    domain = DOMAINS[name]
    try:
        return load_domain(domain, GLUE[task or domain.tasks[0]], data)
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", [domain.name for domain in DOMAINS.values() if domain.tasks[0] in GLUE])
def test_every_set_is_read_and_scored(name, data):
    domain = DOMAINS[name]
    for task in domain.tasks:
        examples, _ = load(name, data, task)
        assert len(examples) > 50
        assert len({example.id for example in examples}) == len(examples)
        records = [{"id": example.id, "label": example.label, "prediction": example.label} for example in examples]
        if domain.labels:  # a model knows three classes: let it say contradiction
            assert {example.label for example in examples} == {0, 1}
            records = [{**record, "prediction": 2 * record["label"]} for record in records]
        assert score_domain(domain, GLUE[task], records)["score"] == pytest.approx(1)
        assert 0 <= chance_of(domain, GLUE[task], records) < 0.9


def chance_of(domain, task, records):
    return chance(lambda records: score_domain(domain, task, records)["score"], records, len(task.labels))


@pytest.mark.parametrize("name", ["imdb_contrast", "imdb_counterfactual"])
def test_pairs_are_one_review_with_two_labels(name, data):
    examples, _ = load(name, data)
    labels = {example.id: example.label for example in examples}
    originals = [name for name in labels if "-" not in name]
    assert 2 * len(originals) == len(labels)
    # Words alone decided who belongs together; that labels are opposite in every pair says they decided well.
    assert all(labels[f"{name}-edited"] == 1 - labels[name] for name in originals)


def test_words_find_the_pairs_of_a_file_that_is_sorted(data):
    examples, _ = load("imdb_contrast", data)
    rows, _ = rows_from_folders(data, [data / "domains" / "imdb_contrast"], Split("imdb_contrast", "test"))
    edited = {example.id: example.texts[0] for example in examples if "-" in example.id}
    assert edited == {f"{number}-edited": row["sentence"] for number, row in enumerate(rows)}


def test_sick_shares_sentences_with_stsb(data):
    examples, counts = load("sick_similarity", data)
    [left_out] = counts.values()
    assert left_out > len(examples) / 10, "SICK and STS-B both draw on captions of videos"
