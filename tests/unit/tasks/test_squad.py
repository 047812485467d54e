"""SQuAD: windows that together hold the paragraph, targets that name the answer, and answers from logits."""

import itertools

import numpy as np
import pytest
from finetuning_helpers import make_model, make_questions

from sharedqkv.data.tokenizer import load_tokenizer
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.tasks.squad import SQUAD, Question, _starts

TASK = SQUAD["squad"]
RECIPE = FinetuneRecipe(max_length=20, stride=4, max_question_length=8)
CONTEXT = "the song is fine . " * 4 + "anna wrote the film . " + "a play is dull . " * 3
QUESTION = Question("q", "who wrote the film ?", CONTEXT, ("anna",), (CONTEXT.index("anna"),))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return load_tokenizer(str(make_model(tmp_path_factory.mktemp("model"))))


def test_windows_overlap_and_cover_the_paragraph(tokenizer):
    features = TASK.features([QUESTION], tokenizer, RECIPE)
    places = features.details
    spans = [offsets[mask] for offsets, mask in zip(places.offsets, places.is_context, strict=True)]
    assert len(spans) > 2
    assert spans[0][0, 0] == 0
    assert spans[-1][-1, 1] == len(CONTEXT.rstrip())
    for before, after in itertools.pairwise(spans):
        shared = {tuple(place) for place in before.tolist()} & {tuple(place) for place in after.tolist()}
        assert len(shared) == RECIPE.stride
    assert all(len(row["input_ids"]) <= RECIPE.max_length for row in features.inputs)


def test_windows_reach_the_end_and_none_is_idle():
    for tokens, (room, stride) in itertools.product(range(60), [(10, 4), (10, 0), (5, 4), (60, 3)]):
        starts = list(_starts(tokens, room, stride))
        assert starts[0] == 0
        assert starts[-1] + room >= tokens
        assert all(first + room < tokens for first in starts[:-1]), "the one before has not reached the end"
        assert all(after - before == room - stride for before, after in itertools.pairwise(starts))


def test_questions_that_share_a_paragraph_keep_their_own_answers(tokenizer):
    other = Question("r", "what is dull ?", CONTEXT, ("a play",), (CONTEXT.index("a play"),))
    alone = [TASK.features([question], tokenizer, RECIPE, training=True).inputs for question in (QUESTION, other)]
    assert TASK.features([QUESTION, other], tokenizer, RECIPE, training=True).inputs == [*alone[0], *alone[1]]


def test_targets_name_the_answer_or_nothing(tokenizer):
    trained = TASK.features([QUESTION], tokenizer, RECIPE, training=True).inputs
    places = TASK.features([QUESTION], tokenizer, RECIPE).details
    named = 0
    for row, offsets in zip(trained, places.offsets, strict=True):
        first, last = row["start_positions"], row["end_positions"]
        if (first, last) == (0, 0):
            assert "anna" not in tokenizer.decode(row["input_ids"])
            continue
        named += 1
        assert CONTEXT[offsets[first, 0] : offsets[last, 1]] == "anna"
    assert named


def test_an_answer_cut_by_the_window_is_no_target(tokenizer):
    long_answer = CONTEXT[:80].rstrip()
    question = Question("q", "who ?", CONTEXT, (long_answer,), (0,))
    rows = TASK.features([question], tokenizer, RECIPE, training=True).inputs
    assert all((row["start_positions"], row["end_positions"]) == (0, 0) for row in rows)


def test_perfect_logits_give_the_answer(tokenizer):
    questions = [QUESTION, *TASK.examples(make_questions(5), "")]
    features = TASK.features(questions, tokenizer, RECIPE)
    outputs = []
    for row in TASK.features(questions, tokenizer, RECIPE, training=True).inputs:
        logits = np.zeros((2, 24), dtype=np.float32)  # a padded row
        logits[0, row["start_positions"]] = logits[1, row["end_positions"]] = 5
        logits[:, 20:] = 100  # padding must not win
        outputs.append(logits)
    records = TASK.records(questions, features, outputs, RECIPE)
    assert [record["prediction"] for record in records] == [question.answers[0] for question in questions]
    assert TASK.score(TASK.validation[0], records) == {"exact_match": 1.0, "f1": 1.0, "score": 1.0}


def test_the_threshold_silences_an_answer_but_keeps_its_text(tokenizer):
    task = SQUAD["squad_v2"]
    questions = task.examples(make_questions(2, unanswerable=True), "")
    features = task.features(questions, tokenizer, RECIPE)
    outputs = []
    for index in features.details.question:
        logits = np.zeros((2, RECIPE.max_length), dtype=np.float32)
        logits[:, 0] = 5 if index else -5
        outputs.append(logits)
    records = task.records(questions, features, outputs, RECIPE)
    assert [bool(record["prediction"]) for record in records] == [True, False]
    assert all(record["scores"]["text"] for record in records)
    scores = task.score(task.validation[0], records)
    assert scores["unanswerable_exact_match"] == 1
    assert scores["best_f1"] >= scores["f1"]


def test_long_questions_are_cut_and_counted(tokenizer):
    questions = [QUESTION, Question("long", "who wrote the film " * 5, CONTEXT, ("anna",), (CONTEXT.index("anna"),))]
    features = TASK.features(questions, tokenizer, RECIPE)
    assert features.truncated == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answers": {"text": ["bob"], "answer_start": [0]}}, "answer 'bob' does not stand at character 0"),
        ({"answers": {"text": [], "answer_start": []}}, "has no answer; that is SQuAD 2.0's way"),
        ({"answers": "anna"}, "answers must be like"),
        ({"context": None}, "context must be text"),
        ({"context": " "}, "the context is empty"),
    ],
)
def test_bad_rows_are_named(changes, message):
    row = {"id": "q1", "question": "who ?", "context": "anna", "answers": {"text": ["anna"], "answer_start": [0]}}
    with pytest.raises(ValueError, match=message) as raised:
        TASK.examples([{**row, **changes}], "dev.json")
    assert "dev.json, row 1" in str(raised.value)
