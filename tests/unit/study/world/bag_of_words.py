"""What can be had without word order: linear models on counts. They must stay far behind."""

import re
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from sharedqkv.study.world.lexicon import WORDS

Rows = list[dict[str, Any]]
PEOPLE = {form for noun in WORDS.men + WORDS.women for form in (noun.one, noun.many)}


def _counts(texts: list[list[str]]) -> list[csr_matrix]:
    """One matrix of counts for each list of texts, in the same columns."""
    vectorizer = CountVectorizer(token_pattern=r"\w+").fit([text for column in texts for text in column])
    return [vectorizer.transform(column) for column in texts]


def _features(rows: Rows) -> csr_matrix:
    """Counts; for pairs those of both texts, what they share and where they differ."""
    columns = [[row[name] for row in rows] for name in ("sentence", "sentence1", "sentence2") if name in rows[0]]
    counts = _counts(columns)
    if len(counts) == 1:
        return counts[0]
    one, two = counts
    return hstack([one, two, one.minimum(two), abs(one - two)]).tocsr()


def score(train: Rows, test: Rows) -> float:
    """Accuracy, or Spearman's correlation where labels are graded."""
    features = _features(train + test)
    labels, wanted = ([row["label"] for row in rows] for rows in (train, test))
    if isinstance(wanted[0], float):
        predicted = Ridge().fit(features[: len(train)], labels).predict(features[len(train) :])
        return float(spearmanr(predicted, wanted).statistic)
    model = LogisticRegression(max_iter=2000).fit(features[: len(train)], labels)
    return float(model.score(features[len(train) :], wanted))


def span_score(train: Rows, test: Rows) -> float:
    """Share of questions where the person judged likeliest, from words around and the question's, is the answer."""
    candidates = [(number, *candidate) for number, row in enumerate(train + test) for candidate in _candidates(row)]
    texts = [[candidate[column] for candidate in candidates] for column in (1, 2, 3)]
    person, around, question = _counts(texts)
    shared = csr_matrix(around.minimum(question).sum(axis=1))
    features = hstack([person, around, question, around.minimum(question), shared]).tocsr()
    is_answer = np.array([candidate[4] for candidate in candidates])
    in_train = np.array([candidate[0] < len(train) for candidate in candidates])
    model = LogisticRegression(max_iter=2000).fit(features[in_train], is_answer[in_train])
    likely = model.predict_proba(features)[:, 1]
    hits = []
    for number in range(len(train), len(train) + len(test)):
        mine = [place for place, candidate in enumerate(candidates) if candidate[0] == number]
        hits.append(is_answer[max(mine, key=lambda place: likely[place])])
    return float(np.mean(hits))


def _candidates(row: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """Everybody in the context: who, the words of their sentence, the question, and whether they are the answer."""
    found = []
    for part in re.finditer(r"[^.]+\.", row["context"]):
        for match in re.finditer(r"[Tt]he (\w+)", part[0]):
            if match[1] in PEOPLE:
                is_answer = part.start() + match.start() == row["answers"]["answer_start"][0]
                found.append((match[1], part[0], row["question"], is_answer))
    return found
