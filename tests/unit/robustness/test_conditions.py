"""What models are tried under: names on the command line, examples, their noise, what is left out and why."""

import pytest
from finetuning_helpers import make_questions, make_rows, write_jsonl

from sharedqkv.robustness.conditions import (
    CLEAN,
    NOISES,
    SEVERITIES,
    Condition,
    chance_of,
    conditions_for,
    load_examples,
    parse_noises,
    parse_severities,
    score,
    with_noise,
)
from sharedqkv.robustness.domains import DOMAINS
from sharedqkv.robustness.exclusions import EXCLUSIONS
from sharedqkv.robustness.noises import MODEL_NOISES
from sharedqkv.robustness.text_noise import TEXT_NOISES
from sharedqkv.tasks.registry import get_task

EVERYTHING = {"noises": NOISES, "severities": (1, 3), "seeds": (0, 1), "domains": list(DOMAINS)}


def test_noises_are_given_by_name_or_group():
    assert parse_noises("keyboard, gaussian,keyboard") == ["keyboard", "gaussian"]
    assert parse_noises("all") == [*TEXT_NOISES, *MODEL_NOISES]
    assert parse_noises("model,ocr") == [*MODEL_NOISES, "ocr"]
    assert parse_noises("text") == list(TEXT_NOISES)
    assert parse_noises("none") == []


@pytest.mark.parametrize(("text", "named"), [("keybord,ocr", "keybord"), ("", "nothing"), (" , ", "nothing")])
def test_unknown_noises_list_the_known(text, named):
    with pytest.raises(ValueError, match=f"--noise: unknown {named}; known: all, text, model, none, keyboard"):
        parse_noises(text)


def test_severities_are_a_list_or_a_range():
    assert parse_severities("1-5") == SEVERITIES == (1, 2, 3, 4, 5)
    assert parse_severities("5,1,3,1") == (1, 3, 5)
    assert parse_severities("2") == (2,)


@pytest.mark.parametrize("text", ["0", "6", "1,9", "0-3", "5-1", "", "high", "1-2-3", "-1", "1.5"])
def test_severities_that_do_not_exist_are_told(text):
    with pytest.raises(ValueError, match=r"--severity .* expected numbers from 1 to 5, like 1,3,5 or 1-5"):
        parse_severities(text)


def test_a_task_is_tried_clean_under_every_noise_and_seed_and_on_its_own_domains():
    conditions, left_out = conditions_for("sst2", **EVERYTHING)
    assert conditions[0] == Condition(CLEAN)
    noises = [condition for condition in conditions if condition.is_noise]
    assert {(condition.name, condition.seed) for condition in noises} == {(n, s) for n in NOISES for s in (0, 1)}
    assert all(condition.severities == (1, 3) for condition in noises)
    domains = {condition.name for condition in conditions if condition.is_domain}
    assert domains == {name for name, domain in DOMAINS.items() if "sst2" in domain.tasks}
    assert left_out == {}


@pytest.mark.parametrize("task", EXCLUSIONS)
def test_noises_that_change_the_label_are_left_out_with_the_reason(task):
    conditions, left_out = conditions_for(task, **EVERYTHING)
    assert left_out == EXCLUSIONS[task]
    assert {condition.name for condition in conditions if condition.is_noise} == set(NOISES) - set(left_out)


def test_cola_takes_no_text_noise():
    conditions, _ = conditions_for("cola", **EVERYTHING)
    assert {condition.name for condition in conditions} == {CLEAN, *MODEL_NOISES}


def test_noise_in_the_model_leaves_one_text():
    assert Condition("keyboard", 0, (1, 3)).text_severities == (1, 3)
    assert Condition("gaussian", 0, (1, 3)).text_severities == (0,)
    assert Condition(CLEAN).text_severities == Condition("imdb").text_severities == (0,)


@pytest.fixture
def data(tmp_path):
    write_jsonl(tmp_path / "sst2" / "validation.jsonl", make_rows("sst2", 30))
    write_jsonl(tmp_path / "squad" / "validation.jsonl", make_questions(20))
    write_jsonl(tmp_path / "domains" / "imdb" / "test.jsonl", make_rows("sst2", 25, seed=1))
    texts = [f"number{number} of the films{number} that we{number} saw is" for number in range(12)]
    for split, word, label in (("original", "fine", 1), ("test", "dull", 0)):
        rows = [{"sentence": f"{text} {word}", "label": label} for text in texts]
        write_jsonl(tmp_path / "domains" / "imdb_contrast" / f"{split}.jsonl", rows)
    return tmp_path


def test_a_limit_draws_some_of_the_examples_the_same_ones_every_time(data):
    task = get_task("sst2")
    every = load_examples(Condition(CLEAN), task, data, None)
    assert (len(every.examples), every.counts) == (30, {})
    some = load_examples(Condition(CLEAN), task, data, 8)
    ids = [example.id for example in some.examples]
    assert len(ids) == 8
    assert ids == sorted(ids) != list(range(8)), "drawn, and in their order"
    assert some.counts == {"left out by --examples": 22}
    assert load_examples(Condition("keyboard", 3, (5,)), task, data, 8).examples == some.examples
    assert load_examples(Condition(CLEAN), task, data, 30) == every
    assert len(load_examples(Condition("imdb"), task, data, 8).examples) == 8


def test_a_limit_does_not_part_edited_texts_from_their_originals(data):
    loaded = load_examples(Condition("imdb_contrast"), get_task("sst2"), data, 5)
    ids = {example.id for example in loaded.examples}
    assert ids == {name for number in range(12) for name in (str(number), f"{number}-edited")}


def test_missing_sets_are_named(data):
    with pytest.raises(OSError, match="no split test of yelp"):
        load_examples(Condition("yelp"), get_task("sst2"), data, None)


@pytest.mark.parametrize("noise", TEXT_NOISES)
def test_the_texts_of_an_example_are_changed_and_nothing_else(noise):
    rows = [{**row, "hypothesis": "The play, by Anna: not what it is!"} for row in make_rows("mnli", 30)]
    examples = get_task("mnli").examples(rows, "here")
    condition = Condition(noise, 0, SEVERITIES)
    assert with_noise(examples, condition, 0) == examples
    noisy = with_noise(examples, condition, 5)
    assert [(e.id, e.label) for e in noisy] == [(e.id, e.label) for e in examples]
    changed = [[a != b for a, b in zip(*pair, strict=True)] for pair in zip(texts(examples), texts(noisy), strict=True)]
    assert sum(second for _, second in changed) > 15
    assert noise == "punctuation" or sum(first for first, _ in changed) > 15, "premises hold no punctuation"
    assert with_noise(examples, condition, 5) == noisy
    assert with_noise(examples, Condition(noise, 1, SEVERITIES), 5) != noisy or noise == "punctuation"


def texts(examples):
    return [example.texts for example in examples]


def test_equal_texts_get_noise_of_their_own():
    """Otherwise a premise and a hypothesis of the same words would stay the same words."""
    text = "the old film is a lovely thing to see again and again"
    rows = [{"premise": text, "hypothesis": text, "label": 0, "idx": number} for number in range(2)]
    noisy = texts(with_noise(get_task("mnli").examples(rows, "here"), Condition("keyboard", 0, (5,)), 5))
    assert len({*noisy[0], *noisy[1]}) == 4


@pytest.mark.parametrize("noise", MODEL_NOISES)
def test_noise_in_the_model_leaves_texts_alone(noise):
    examples = get_task("sst2").examples(make_rows("sst2", 5), "here")
    assert with_noise(examples, Condition(noise, 0, (5,)), 5) == examples


def make_hard_questions():
    """Overlapping answers, at both ends of the context, of one letter, with digits, marks and other scripts."""
    context = "Anna, 41, wrote the play — not Bob. Ее пьеса «Море» и 日本 cafe\u0301 🙂 in 1999!"
    answers = ["Anna", "Anna, 41, wrote", "41", "a", "not Bob", "Море", "日本 cafe\u0301 🙂", "1999!", "!"]
    question = {
        "id": "hard",
        "question": "Who wrote the play, and when?",
        "context": context,
        "answers": {"text": answers, "answer_start": [context.index(text) for text in answers]},
    }
    return [question, *make_questions(30)]


@pytest.mark.parametrize("noise", TEXT_NOISES)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_answers_move_along_and_are_never_lost(noise, severity):
    task = get_task("squad")
    questions = task.examples(make_hard_questions(), "here")
    noisy = with_noise(questions, Condition(noise, 0, SEVERITIES), severity)
    for before, after in zip(questions, noisy, strict=True):
        assert after.id == before.id
        assert len(after.answers) == len(after.starts) == len(before.answers)
        for text, start in zip(after.answers, after.starts, strict=True):
            assert text.strip()
            assert after.context[start : start + len(text)] == text
    if severity == 5 and noise != "punctuation":
        assert sum(a.context != b.context for a, b in zip(questions, noisy, strict=True)) > 25
        assert sum(a.question != b.question for a, b in zip(questions, noisy, strict=True)) > 20


def test_questions_without_an_answer_stay_so():
    questions = get_task("squad_v2").examples(make_questions(10, unanswerable=True), "here")
    noisy = with_noise(questions, Condition("keyboard", 0, (5,)), 5)
    assert [bool(question.answers) for question in noisy] == [True, False] * 5


def test_chance_is_the_best_constant_answer_in_the_classes_of_the_domain():
    task = get_task("mnli")
    labels = [0, 0, 0, 1, 2, 2]
    records = [{"id": n, "label": label, "prediction": 0} for n, label in enumerate(labels)]
    assert chance_of(Condition(CLEAN), task, records) == pytest.approx(1 / 2)
    two_classes = [{**record, "label": int(record["label"] > 0)} for record in records[1:]]
    assert chance_of(Condition("hans"), task, two_classes) == pytest.approx(3 / 5)
    contradictions = [{**record, "prediction": 2} for record in two_classes]
    assert score(Condition("hans"), task, contradictions)["score"] == pytest.approx(3 / 5)


def test_chance_without_classes():
    similar = [{"id": n, "label": float(n), "prediction": 1.0} for n in range(4)]
    assert chance_of(Condition(CLEAN), get_task("stsb"), similar) == 0
    answer = {"prediction": "anna", "scores": {"text": "anna", "span": 0.0, "null_odds": 0.0}}
    questions = [{"id": str(n), "label": ["anna"] if n else [], **answer} for n in range(4)]
    assert chance_of(Condition(CLEAN), get_task("squad"), questions[1:]) == 0
    assert chance_of(Condition(CLEAN), get_task("squad_v2"), questions) == pytest.approx(1 / 4)
