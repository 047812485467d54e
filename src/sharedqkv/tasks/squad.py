"""SQuAD 1.1 and 2.0: paragraphs in overlapping windows, and answers from what the model says of each window."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.tasks.squad_metrics import Windows, best_spans, best_threshold, squad_scores
from sharedqkv.tasks.task import Features, Record, Row, Split, check_columns, check_text

if TYPE_CHECKING:
    from sharedqkv.models import SharedQKVForQuestionAnswering

_CHUNK = 1000
"""Questions tokenised at once, to bound the memory."""


@dataclass(frozen=True)
class Question:
    id: str
    question: str
    context: str
    answers: tuple[str, ...] = ()
    """Gold answers; none where the question has no answer."""
    starts: tuple[int, ...] = ()
    """Where in the context each answer begins."""


@dataclass(frozen=True)
class WindowPlaces:
    """Where the tokens of each window stand; a list entry a window."""

    question: list[int]
    offsets: list[np.ndarray]
    is_context: list[np.ndarray]


@dataclass(frozen=True)
class SquadTask:
    name: str
    unanswerable: bool
    """Whether questions may have no answer, as in 2.0."""
    text_columns: tuple[str, ...] = ("question", "context")
    test: tuple[Split, ...] = ()

    @property
    def train(self) -> Split:
        return Split(self.name, "train")

    @property
    def validation(self) -> tuple[Split, ...]:
        return (Split(self.name, "validation", scored_as=self.name),)

    def examples(self, rows: Sequence[Row], where: str, labelled: bool = True) -> list[Question]:
        check_columns(rows, (*self.text_columns, *(["id", "answers"] if labelled else [])), where)
        return [
            self._question(row, str(row.get("id", number)), f"{where}, row {number + 1}", labelled)
            for number, row in enumerate(rows)
        ]

    def _question(self, row: Row, name: str, place: str, labelled: bool) -> Question:
        question, context = (check_text(row, column, place) for column in self.text_columns)
        if not context.strip():
            raise ValueError(f"{place}: the context is empty")
        if not labelled:
            return Question(name, question, context)
        try:
            texts, starts = tuple(row["answers"]["text"]), tuple(map(int, row["answers"]["answer_start"]))
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                f'{place}: answers must be like {{"text": ["…"], "answer_start": [0]}}, not {row["answers"]!r}'
            ) from None
        if not texts and not self.unanswerable:
            raise ValueError(f"{place}: question {name} has no answer; that is SQuAD 2.0's way: use squad_v2")
        for text, start in zip(texts, starts, strict=True):
            if context[start : start + len(text)] != text:
                raise ValueError(f"{place}: answer {text!r} does not stand at character {start} of its context")
        return Question(name, question, context, texts, starts)

    def new_model(self, encoder: Any) -> "SharedQKVForQuestionAnswering":
        from sharedqkv.models import SharedQKVForQuestionAnswering

        model = SharedQKVForQuestionAnswering(encoder.config)
        encoder.pooler = None
        model.bert = encoder
        return model

    def features(
        self, examples: Sequence[Question], tokenizer: Any, recipe: FinetuneRecipe, training: bool = False
    ) -> Features:
        inputs: list[dict[str, Any]] = []
        places = WindowPlaces([], [], [])
        truncated = 0
        for first in range(0, len(examples), _CHUNK):
            chunk = examples[first : first + _CHUNK]
            questions = [_cut(example.question.strip(), tokenizer, recipe.max_question_length) for example in chunk]
            truncated += sum(cut != example.question.strip() for cut, example in zip(questions, chunk, strict=True))
            for window, question, offsets, is_context in _windows(questions, chunk, tokenizer, recipe):
                if training:
                    start, end = _answer_tokens(chunk[question], offsets, is_context)
                    window |= {"start_positions": start, "end_positions": end}
                else:
                    places.question.append(first + question)
                    places.offsets.append(offsets)
                    places.is_context.append(is_context)
                inputs.append(window)
        return Features(inputs, truncated, places)

    def records(
        self, examples: Sequence[Question], features: Features, outputs: Sequence[np.ndarray], recipe: FinetuneRecipe
    ) -> list[Record]:
        windows = _padded(features.details, outputs)
        contexts = [example.context for example in examples]
        spans = best_spans(windows, contexts, recipe.n_best, recipe.max_answer_length)
        answers = spans.answers(recipe.null_threshold if self.unanswerable else None)
        return [
            {
                "id": example.id,
                "label": list(example.answers),
                "prediction": answer,
                "scores": {"text": text, "span": float(score), "null_odds": float(odds)},
            }
            for example, answer, text, score, odds in zip(
                examples, answers, spans.texts, spans.scores, spans.null_odds, strict=True
            )
        ]

    def score(self, split: Split, records: Sequence[Record]) -> dict[str, float]:
        scores = question_scores(records, "prediction")
        summary = scores.summary()
        if self.unanswerable:
            answered = question_scores(records, "text")
            odds = np.array([record["scores"]["null_odds"] for record in records])
            for name, values in (("exact_match", answered.exact_match), ("f1", answered.f1)):
                summary[f"best_{name}"] = best_threshold(odds, values, answered.answerable).score
        return {**summary, "score": summary["f1"]}


SQUAD = {task.name: task for task in (SquadTask("squad", False), SquadTask("squad_v2", True))}


def question_scores(records: Sequence[Record], which: str = "prediction") -> Any:
    """Exact match and F1 of each question, of the predictions or (`text`) of the answers without a threshold."""
    texts = {
        record["id"]: record["prediction"] if which == "prediction" else record["scores"]["text"] for record in records
    }
    return squad_scores(texts, {record["id"]: record["label"] for record in records})


def _cut(question: str, tokenizer: Any, max_tokens: int) -> str:
    if len(question) <= max_tokens:  # a token has at least one character
        return question
    offsets = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return question if len(offsets) <= max_tokens else question[: offsets[max_tokens - 1][1]]


def _windows(
    questions: list[str], chunk: Sequence[Question], tokenizer: Any, recipe: FinetuneRecipe
) -> Iterator[tuple[dict[str, Any], int, np.ndarray, np.ndarray]]:
    """Inputs, index of the question in the chunk, characters of each token, and which tokens are the context's.

    Cut here and not by the tokenizer: tokenizers 0.23.1 and 0.23.2 lose the end of long paragraphs.
    """
    contexts = list({example.context: None for example in chunk})  # several questions share one
    encoded = tokenizer(contexts, add_special_tokens=False, return_offsets_mapping=True)
    tokens_of = dict(zip(contexts, zip(encoded["input_ids"], encoded["offset_mapping"], strict=True), strict=True))
    asked = tokenizer(questions, add_special_tokens=False)["input_ids"]
    for index, (question_ids, example) in enumerate(zip(asked, chunk, strict=True)):
        context_ids, characters = tokens_of[example.context]
        head = [tokenizer.cls_token_id, *question_ids, tokenizer.sep_token_id]
        room = recipe.max_length - len(head) - 1
        for first in _starts(len(context_ids), room, recipe.stride):
            ids = context_ids[first : first + room]
            inputs = {
                "input_ids": [*head, *ids, tokenizer.sep_token_id],
                "token_type_ids": [0] * len(head) + [1] * (len(ids) + 1),
            }
            is_context = np.zeros(len(inputs["input_ids"]), dtype=bool)
            is_context[len(head) : -1] = True
            offsets = np.zeros((len(is_context), 2), dtype=np.int32)
            offsets[is_context] = characters[first : first + room]
            yield inputs, index, offsets, is_context


def _starts(tokens: int, room: int, stride: int) -> range:
    """Of windows of so many tokens that overlap by `stride`; the last one reaches the last token."""
    return range(0, max(1, tokens - stride), room - stride)


def _answer_tokens(example: Question, offsets: np.ndarray, is_context: np.ndarray) -> tuple[int, int]:
    """First and last token of the first gold answer; [CLS] twice where this window does not hold all of it."""
    if not example.answers:
        return 0, 0
    begin, end = example.starts[0], example.starts[0] + len(example.answers[0])
    inside = np.flatnonzero(is_context & (offsets[:, 1] > begin) & (offsets[:, 0] < end))
    in_window = offsets[is_context]
    if not len(inside) or in_window[0, 0] > begin or in_window[-1, 1] < end:
        return 0, 0
    return int(inside[0]), int(inside[-1])


def _padded(places: WindowPlaces, outputs: Sequence[np.ndarray]) -> Windows:
    """`outputs` are (2, length) arrays of start and end logits."""
    longest = max(len(mask) for mask in places.is_context)
    logits = np.zeros((len(outputs), 2, longest), dtype=np.float32)
    offsets = np.zeros((len(outputs), longest, 2), dtype=np.int32)
    mask = np.zeros((len(outputs), longest), dtype=bool)
    for index, output in enumerate(outputs):
        length = len(places.is_context[index])
        logits[index, :, :length] = output[:, :length]
        offsets[index, :length] = places.offsets[index]
        mask[index, :length] = places.is_context[index]
    return Windows(np.array(places.question), logits[:, 0], logits[:, 1], offsets, mask)
