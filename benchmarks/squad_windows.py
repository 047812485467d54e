"""Do overlapping windows hold the whole paragraph? The tokenizers library's against ours, on SQuAD.

    python benchmarks/squad_windows.py DATA VOCABULARY --output RECORD.json

With tokenizers 0.23.1 and 0.23.2 they do not (huggingface/tokenizers#2091). DATA holds squad/, as for
`sharedqkv finetune`.
"""

import argparse
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from sharedqkv.data.tokenizer import load_tokenizer
from sharedqkv.tasks.cells import write_json
from sharedqkv.tasks.recipe import load_recipes
from sharedqkv.tasks.sources import load_rows
from sharedqkv.tasks.squad import SQUAD, Question
from sharedqkv.tasks.task import Split
from sharedqkv.training.run_folder import environment

_AT_ONCE = 1000
TASK = SQUAD["squad"]
RECIPE = load_recipes(["squad"], None, {})["squad"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("vocabulary")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    tokenizer = load_tokenizer(options.vocabulary)
    splits = {split.name: measure(split, options.data, tokenizer) for split in (TASK.train, *TASK.validation)}
    print(json.dumps(splits, indent=2))
    write_json(options.output, {"splits": splits, "environment": environment()})


def measure(split: Split, data: Path, tokenizer: Any) -> dict[str, Any]:
    questions = TASK.examples(*load_rows(data, split))
    ours = TASK.features(questions, tokenizer, RECIPE)
    theirs: list[list[int]] = []
    lost = unanswerable = 0
    for first in range(0, len(questions), _AT_ONCE):
        chunk = questions[first : first + _AT_ONCE]
        encoded = library_windows(chunk, tokenizer)
        theirs += encoded["input_ids"]
        ends = [0] * len(chunk)
        for index, offsets in zip(encoded["overflow_to_sample_mapping"], encoded["offset_mapping"], strict=True):
            ends[index] = max(ends[index], offsets[-2][1])  # before [SEP]
        for question, end in zip(chunk, ends, strict=True):
            if end < last_character(question.context, tokenizer):
                lost += 1
                answers = zip(question.answers, question.starts, strict=True)
                unanswerable += all(start + len(text) > end for text, start in answers)
    windows = Counter(ours.details.question)
    return {
        "questions": len(questions),
        "questions_with_several_windows": sum(count > 1 for count in windows.values()),
        "end_lost_by_library": lost,
        "all_answers_lost_by_library": unanswerable,
        "our_windows": len(ours.inputs),
        "library_windows": len(theirs),
        "same_inputs": [window["input_ids"] for window in ours.inputs] == theirs,
    }


def library_windows(chunk: list[Question], tokenizer: Any) -> Any:
    return tokenizer(
        [question.question.strip() for question in chunk],
        [question.context for question in chunk],
        truncation="only_second",
        max_length=RECIPE.max_length,
        stride=RECIPE.stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )


@cache
def last_character(context: str, tokenizer: Any) -> int:
    """Where the last token of the paragraph ends."""
    return tokenizer(context, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"][-1][1]


if __name__ == "__main__":
    main()
