"""SQuAD: from start and end logits to answers, and from answers to exact match and F1. Scores are fractions.

A long context is read in overlapping windows. Each window names its best span; the best of all windows is the answer.
In v2.0 a question may have no answer: `null_odds` says how much more the model believes in that, and a threshold
on it decides. An unanswerable question has no gold answers, and its right prediction is the empty string.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize_answer(text: str) -> str:
    """Lower case, without punctuation, articles and superfluous white space, in SQuAD's order."""
    without_punctuation = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", without_punctuation).split())


def exact_match(prediction: str, golds: Sequence[str]) -> float:
    """1 if the prediction equals any gold answer after normalisation, else 0."""
    return float(normalize_answer(prediction) in _normalized_golds(golds))


def token_f1(prediction: str, golds: Sequence[str]) -> float:
    """F1 of the words, for the gold answer that suits the prediction best."""
    words = normalize_answer(prediction).split()
    return max(_overlap_f1(words, gold.split()) for gold in _normalized_golds(golds))


def _normalized_golds(golds: Sequence[str]) -> list[str]:
    return [gold for gold in map(normalize_answer, golds) if gold] or [""]


def _overlap_f1(predicted: list[str], gold: list[str]) -> float:
    if not predicted or not gold:
        return float(predicted == gold)
    common = sum((Counter(predicted) & Counter(gold)).values())
    return 2 * common / (len(predicted) + len(gold))


@dataclass(frozen=True)
class SquadScores:
    """One entry a question, in the order of the gold answers."""

    exact_match: np.ndarray
    f1: np.ndarray
    answerable: np.ndarray

    def summary(self) -> dict[str, float]:
        """Means over all questions; in v2.0 also over those with and those without an answer."""
        parts = {"": np.ones_like(self.answerable)}
        if not self.answerable.all():
            parts |= {"answerable_": self.answerable, "unanswerable_": ~self.answerable}
        return {
            f"{part}{name}": float(values[chosen].mean())
            for part, chosen in parts.items()
            for name, values in (("exact_match", self.exact_match), ("f1", self.f1))
            if chosen.any()
        }


def squad_scores(predictions: Mapping[str, str], golds: Mapping[str, Sequence[str]]) -> SquadScores:
    """Score every question; both arguments are keyed by question id."""
    if not golds:
        raise ValueError("no questions to score: the split is empty")
    missing = [question for question in golds if question not in predictions]
    if missing:
        raise ValueError(f"{len(missing)} of {len(golds)} questions have no prediction; the first is {missing[0]!r}")
    pairs = [(predictions[question], golds[question]) for question in golds]
    return SquadScores(
        exact_match=np.array([exact_match(*pair) for pair in pairs]),
        f1=np.array([token_f1(*pair) for pair in pairs]),
        answerable=np.array([_normalized_golds(gold) != [""] for _, gold in pairs]),
    )


@dataclass(frozen=True)
class Windows:
    """What the model said of W windows of L tokens each; the windows of one question lie in any order."""

    question_W: np.ndarray
    """Which question a window belongs to: its index in the list of contexts."""
    start_logits_WL: np.ndarray
    end_logits_WL: np.ndarray
    offsets_WL2: np.ndarray
    """First character and end of each token in its context."""
    context_mask_WL: np.ndarray
    """True for tokens of the context; false for question, special and padding tokens."""


@dataclass(frozen=True)
class Spans:
    """The best non-empty answer to each question, and what speaks against it."""

    texts: list[str]
    scores: np.ndarray
    """Start logit plus end logit."""
    null_odds: np.ndarray
    """Score of "no answer" minus `scores`: the higher, the likelier the question is unanswerable."""

    def answers(self, threshold: float | None = None) -> list[str]:
        """The texts; with a threshold (v2.0) the empty string wherever `null_odds` is above it."""
        if threshold is None:
            return self.texts
        return [text if odds <= threshold else "" for text, odds in zip(self.texts, self.null_odds, strict=True)]


def best_spans(windows: Windows, contexts: Sequence[str], n_best: int = 20, max_answer_length: int = 30) -> Spans:
    """The best span over all windows of each question.

    A span starts at one of its window's `n_best` likeliest start tokens, ends at one of the `n_best` likeliest end
    tokens, not before its start, and is at most `max_answer_length` tokens long. "No answer" is the span of the
    first token, [CLS]; its score is the lowest of any window, since it must hold for all of them.
    """
    if n_best < 1 or max_answer_length < 1:
        raise ValueError(f"n_best {n_best} and max_answer_length {max_answer_length} must be at least 1")
    _check_windows(windows, len(contexts))
    start_WL = _likeliest(windows.start_logits_WL, windows.context_mask_WL, n_best)
    end_WL = _likeliest(windows.end_logits_WL, windows.context_mask_WL, n_best)
    first_W, last_W, score_W = _best_span_per_window(start_WL, end_WL, max_answer_length)

    question_W = windows.question_W
    # Sorted by question and then by falling score, the first window of each question holds its answer.
    order = np.lexsort((-score_W, question_W))
    best_Q = order[np.searchsorted(question_W[order], np.arange(len(contexts)))]
    null_Q = np.full(len(contexts), np.inf)
    null_W = windows.start_logits_WL[:, 0].astype(float) + windows.end_logits_WL[:, 0]
    np.minimum.at(null_Q, question_W, null_W)

    score_Q = score_W[best_Q]
    begins_Q = windows.offsets_WL2[best_Q, first_W[best_Q], 0]
    ends_Q = windows.offsets_WL2[best_Q, last_W[best_Q], 1]
    texts = [
        context[begin:end] if np.isfinite(score) else ""
        for context, begin, end, score in zip(contexts, begins_Q, ends_Q, score_Q, strict=True)
    ]
    return Spans(texts, score_Q, null_Q - score_Q)


def _check_windows(windows: Windows, num_questions: int) -> None:
    shape = windows.start_logits_WL.shape
    same = windows.end_logits_WL.shape == windows.context_mask_WL.shape == windows.offsets_WL2.shape[:2] == shape
    if len(shape) != 2 or not same or windows.question_W.shape != shape[:1]:
        raise ValueError(
            f"windows disagree in shape: question {windows.question_W.shape}, start logits {shape}, end logits "
            f"{windows.end_logits_WL.shape}, offsets {windows.offsets_WL2.shape}, mask {windows.context_mask_WL.shape}"
        )
    if not (np.isfinite(windows.start_logits_WL).all() and np.isfinite(windows.end_logits_WL).all()):
        raise ValueError("start or end logits hold NaN or infinity: did the training diverge?")
    counts_Q = np.bincount(windows.question_W, minlength=num_questions)
    if len(counts_Q) > num_questions or not counts_Q.all():
        raise ValueError(
            f"{num_questions} contexts, but windows name questions 0 to {len(counts_Q) - 1} and "
            f"{int((counts_Q == 0).sum())} questions have no window: every question needs one"
        )


def _likeliest(logits_WL: np.ndarray, mask_WL: np.ndarray, count: int) -> np.ndarray:
    """Logits with minus infinity outside the mask and below the `count` highest of each row."""
    logits_WL = np.where(mask_WL, logits_WL, -np.inf)
    if count >= logits_WL.shape[1]:
        return logits_WL
    threshold_W1 = np.partition(logits_WL, -count, axis=1)[:, -count, None]
    return np.where(logits_WL >= threshold_W1, logits_WL, -np.inf)


def _best_span_per_window(
    start_WL: np.ndarray, end_WL: np.ndarray, max_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First token, last token and score; all lengths are tried, every start of every window at once."""
    best_WL = np.full(start_WL.shape, -np.inf)
    extra_WL = np.zeros(start_WL.shape, dtype=int)
    num_tokens = start_WL.shape[1]
    for extra in range(min(max_length, num_tokens)):
        score = start_WL[:, : num_tokens - extra] + end_WL[:, extra:]
        better = score > best_WL[:, : num_tokens - extra]
        best_WL[:, : num_tokens - extra][better] = score[better]
        extra_WL[:, : num_tokens - extra][better] = extra
    first_W = best_WL.argmax(axis=1)
    rows_W = np.arange(len(best_WL))
    return first_W, first_W + extra_WL[rows_W, first_W], best_WL[rows_W, first_W]


@dataclass(frozen=True)
class Threshold:
    value: float
    """Answer where `null_odds` is at most this."""
    score: float
    """Mean over the questions it was chosen on."""


def best_threshold(null_odds: np.ndarray, scores: np.ndarray, answerable: np.ndarray) -> Threshold:
    """The threshold with the best mean score, as SQuAD 2.0's evaluation searches it.

    `scores` are the exact matches or F1s of the texts without a threshold. Chosen on the questions that are reported,
    this is the official "best" figure, an upper bound; choose it on others and it is an ordinary hyper-parameter.
    """
    if not len(null_odds) == len(scores) == len(answerable) > 0:
        raise ValueError(
            f"{len(null_odds)} null_odds, {len(scores)} scores, {len(answerable)} answerable: "
            "expected one of each for every question, and at least one question"
        )
    answerable = np.asarray(answerable, dtype=bool)
    order = np.argsort(null_odds, kind="stable")
    odds = null_odds[order]
    # Answering a question gains its score and loses the point that silence earns on an unanswerable one.
    gains = np.where(answerable, scores, scores - 1.0)[order]
    totals = (~answerable).sum() + np.concatenate([[0.0], np.cumsum(gains)])
    # Questions of equal odds are answered together or not at all.
    allowed = np.concatenate([[True], odds[1:] != odds[:-1], [True]])
    best = int(np.where(allowed, totals, -np.inf).argmax())
    return Threshold(float(odds[best - 1] if best else odds[0] - 1), float(totals[best] / len(odds)))
