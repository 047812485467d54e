import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sharedqkv.tasks.squad_metrics import (
    Spans,
    Windows,
    best_spans,
    best_threshold,
    exact_match,
    normalize_answer,
    squad_scores,
    token_f1,
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Eiffel Tower!", "eiffel tower"),
        ("  a  cat\tand AN owl ", "cat and owl"),
        ("U.S.A.", "usa"),
        ("theatre, another, anthem", "theatre another anthem"),
        ("the-end", "theend"),  # punctuation goes first and takes the word's border with it
        ("Zürich – 50 %", "zürich – 50"),  # only ASCII punctuation counts
        (".", ""),
        ("The", ""),
    ],
)
def test_normalisation(text, normal):
    assert normalize_answer(text) == normal


def test_exact_match_and_f1_of_one_gold_answer():
    assert exact_match("the Cat.", ["cat"]) == 1.0
    assert exact_match("black cat", ["cat"]) == 0.0
    assert token_f1("a black cat", ["the cat"]) == pytest.approx(2 * (1 / 2) * 1 / (1 / 2 + 1))
    assert token_f1("cat cat", ["cat dog"]) == pytest.approx(0.5), "a word counts as often as both have it"
    assert token_f1("dog", ["cat"]) == 0.0


def test_the_best_gold_answer_counts():
    golds = ["in the year 1066", "1066", "October 1066"]
    assert exact_match("1066", golds) == 1.0
    assert token_f1("14 October 1066", golds) == pytest.approx(2 * 2 / (3 + 2))


@pytest.mark.parametrize(
    ("prediction", "golds", "score"),
    [
        ("", ["cat"], 0.0),
        ("the", ["cat"], 0.0),
        ("", [], 1.0),
        ("", [""], 1.0),
        ("cat", [], 0.0),
        ("", [".", "cat"], 0.0),  # a gold answer of punctuation alone is dropped, as SQuAD 2.0's evaluation does
    ],
)
def test_empty_predictions_and_unanswerable_questions(prediction, golds, score):
    assert exact_match(prediction, golds) == score
    assert token_f1(prediction, golds) == score


def test_summary_splits_answerable_and_unanswerable():
    golds = {"a": ["cat"], "b": ["black dog"], "c": [], "d": []}
    scores = squad_scores({"a": "cat", "b": "dog", "c": "", "d": "owl"}, golds)
    assert scores.summary() == pytest.approx(
        {
            "exact_match": 2 / 4,
            "f1": (1 + 2 / 3 + 1 + 0) / 4,
            "answerable_exact_match": 1 / 2,
            "answerable_f1": (1 + 2 / 3) / 2,
            "unanswerable_exact_match": 1 / 2,
            "unanswerable_f1": 1 / 2,
        }
    )
    assert list(squad_scores({"a": "cat"}, {"a": ["cat"]}).summary()) == ["exact_match", "f1"]


def test_missing_predictions_and_empty_splits_are_errors():
    with pytest.raises(ValueError, match="1 of 2 questions have no prediction; the first is 'b'"):
        squad_scores({"a": ""}, {"a": [], "b": []})
    with pytest.raises(ValueError, match="split is empty"):
        squad_scores({}, {})


LETTERS = "abcdefghijklmnopqrstuvwxyz"


def random_windows(rng, questions=6, tokens=14, question_tokens=3):
    """One letter a token; question q has 1 to 3 windows, each starting elsewhere in the alphabet."""
    question_W = rng.permutation(np.repeat(np.arange(questions), rng.integers(1, 4, size=questions)))
    shape = (len(question_W), tokens)
    mask = np.zeros(shape, dtype=bool)
    mask[:, question_tokens:-1] = True
    first = rng.integers(0, len(LETTERS) - tokens, size=len(question_W))
    begin = first[:, None] + np.arange(tokens)
    offsets = np.stack([begin, begin + 1], axis=-1)
    return Windows(question_W, rng.normal(size=shape), rng.normal(size=shape), offsets, mask)


def by_trying_all(windows, question, n_best, max_answer_length):
    best = (-np.inf, "")
    null = np.inf
    for w in np.flatnonzero(windows.question_W == question):
        starts, ends = windows.start_logits_WL[w], windows.end_logits_WL[w]
        null = min(null, starts[0] + ends[0])
        context = np.flatnonzero(windows.context_mask_WL[w])
        for i in sorted(context, key=lambda t: -starts[t])[:n_best]:
            for j in sorted(context, key=lambda t: -ends[t])[:n_best]:
                if i <= j < i + max_answer_length:
                    text = LETTERS[windows.offsets_WL2[w, i, 0] : windows.offsets_WL2[w, j, 1]]
                    best = max(best, (starts[i] + ends[j], text))
    return best[1], best[0], null - best[0]


@pytest.mark.parametrize("n_best", [2, 5, 50])
@pytest.mark.parametrize("max_answer_length", [1, 4, 100])
def test_best_spans_equal_trying_all(n_best, max_answer_length):
    windows = random_windows(np.random.default_rng(n_best + max_answer_length))
    spans = best_spans(windows, [LETTERS] * 6, n_best, max_answer_length)
    for question in range(6):
        text, score, odds = by_trying_all(windows, question, n_best, max_answer_length)
        assert spans.texts[question] == text
        assert spans.scores[question] == pytest.approx(score)
        assert spans.null_odds[question] == pytest.approx(odds)


def test_no_possible_span_is_an_empty_answer():
    logits = np.array([[0.0, 5.0, 1.0, 0.0]])
    offsets = np.array([[[0, 0], [0, 1], [1, 2], [0, 0]]])
    mask = np.array([[False, True, True, False]])
    # With one candidate each, the start (token 2) lies behind the end (token 1).
    spans = best_spans(Windows(np.array([0]), logits[:, [0, 2, 1, 3]], logits, offsets, mask), ["ab"], n_best=1)
    assert spans.texts == [""]
    assert spans.answers(threshold=0.0) == [""]


def test_wrong_windows_are_errors():
    good = random_windows(np.random.default_rng(0))
    with pytest.raises(ValueError, match="disagree in shape"):
        best_spans(replace(good, end_logits_WL=good.end_logits_WL[:, 1:]), [LETTERS] * 6)
    with pytest.raises(ValueError, match="diverge"):
        best_spans(replace(good, start_logits_WL=good.start_logits_WL * np.nan), [LETTERS] * 6)
    with pytest.raises(ValueError, match="1 questions have no window"):
        best_spans(good, [LETTERS] * 7)
    with pytest.raises(ValueError, match="5 contexts, but windows name questions 0 to 5"):
        best_spans(good, [LETTERS] * 5)
    with pytest.raises(ValueError, match="at least 1"):
        best_spans(good, [LETTERS] * 6, n_best=0)


def test_all_of_squad_takes_seconds():
    rng = np.random.default_rng(0)
    shape = (10_833, 384)
    question_W = np.concatenate([np.arange(10_570), rng.integers(10_570, size=263)])
    logits = rng.normal(size=shape).astype(np.float32)
    mask = np.broadcast_to(np.arange(384) > 20, shape)
    offsets = np.broadcast_to(np.stack([np.arange(384), np.arange(1, 385)], axis=-1), (*shape, 2))
    begin = time.perf_counter()
    best_spans(Windows(question_W, logits, logits[::-1], offsets, mask), ["x" * 400] * 10_570)
    assert time.perf_counter() - begin < 20, "about 1 s when nothing else runs"


def test_threshold_decides_which_questions_are_answered():
    spans = Spans(["cat", "dog", "owl"], np.zeros(3), np.array([-1.0, 0.5, 2.0]))
    assert spans.answers() == ["cat", "dog", "owl"]
    assert spans.answers(threshold=0.5) == ["cat", "dog", ""]


@pytest.mark.parametrize("seed", range(20))
def test_best_threshold_equals_trying_all(seed):
    rng = np.random.default_rng(seed)
    answerable = rng.random(30) < 0.5
    scores = np.where(answerable, rng.choice([0, 0.4, 1.0], size=30), 0.0)
    odds = rng.integers(-5, 5, size=30).astype(float) - 3 * answerable  # many ties

    def mean_score(threshold):
        return np.where(odds <= threshold, scores, ~answerable).mean()

    chosen = best_threshold(odds, scores, answerable)
    assert chosen.score == pytest.approx(max(mean_score(value) for value in [-100.0, *odds]))
    assert mean_score(chosen.value) == pytest.approx(chosen.score)


def test_threshold_when_silence_or_speech_is_always_right():
    odds = np.array([1.0, -2.0])
    silent = best_threshold(odds, np.zeros(2), np.array([False, False]))
    assert (silent.value < odds.min(), silent.score) == (True, 1.0)
    speaking = best_threshold(odds, np.ones(2), np.array([True, True]))
    assert (speaking.value, speaking.score) == (1.0, 1.0)
    with pytest.raises(ValueError, match="at least one question"):
        best_threshold(np.array([]), np.array([]), np.array([]))


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["squad/plain_text", "squad_v2/squad_v2"])
def test_gold_answers_of_the_real_sets_are_right(name):
    if "SHAREDQKV_DATA" not in os.environ:
        pytest.skip("set SHAREDQKV_DATA to a folder with squad/ and squad_v2/ in the hub's layout")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = Path(os.environ["SHAREDQKV_DATA"]) / name / "validation-00000-of-00001.parquet"
    golds = {row["id"]: row["answers"]["text"] for row in parquet.read_table(file).to_pylist()}
    scores = squad_scores({question: texts[-1] if texts else "" for question, texts in golds.items()}, golds)
    # In three v1.1 questions one annotator's answer is a full stop, which normalises to nothing.
    assert scores.exact_match.sum() >= len(golds) - 3
    silent = squad_scores(dict.fromkeys(golds, ""), golds).summary()
    assert silent["exact_match"] == pytest.approx(np.mean([not texts for texts in golds.values()]))
