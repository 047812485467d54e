"""The control of finetune_minilm: the same checkpoint, tasks and settings with transformers alone.

`BertForSequenceClassification` and a plain `Trainer` with its own sampler, padding and metrics. Scores that agree with
those of `sharedqkv finetune` say that a distance from published figures lies in the checkpoint, not in our code.

    python benchmarks/finetune_control.py --model MODEL --data DATA --tasks cola,rte --seeds 3 --output results/...
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

from sharedqkv.tasks.cells import write_json
from sharedqkv.tasks.glue import GLUE
from sharedqkv.tasks.sources import load_rows

EPOCHS = {"rte": 10.0}
LENGTH = {"rte": 256}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--tasks", required=True, help="a list like cola,rte")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--output", required=True, type=Path)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    scores: dict[str, list[float]] = {}
    for name in options.tasks.split(","):
        splits = [_rows(name, split, options.data, tokenizer) for split in ("train", "validation")]
        scores[name] = [_score(name, options, tokenizer, *splits, seed) for seed in range(options.seeds)]
        print(f"{name}: {100 * np.mean(scores[name]):.2f} ± {100 * np.std(scores[name], ddof=1):.2f} {scores[name]}")
        write_json(options.output / "control.json", scores)
    return 0


def _rows(name: str, split: str, data: Path, tokenizer: Any) -> list[dict[str, Any]]:
    task = GLUE[name]
    place = task.train if split == "train" else task.validation[0]
    rows, _ = load_rows(data, place)
    return [
        {
            **tokenizer(*(row[column] for column in task.text_columns), truncation=True, max_length=LENGTH.get(name)),
            "labels": row["label"],
        }
        for row in rows
    ]


def _score(name: str, options: argparse.Namespace, tokenizer: Any, train: list, validation: list, seed: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            seed=seed,
            learning_rate=options.learning_rate,
            num_train_epochs=EPOCHS.get(name, 5.0),
            per_device_train_batch_size=32,
            per_device_eval_batch_size=128,
            weight_decay=0.01,
            warmup_steps=0.1,
            bf16=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(
            model_init=lambda: AutoModelForSequenceClassification.from_pretrained(
                options.model, num_labels=len(GLUE[name].labels) or 1, dtype="float32"
            ),
            args=args,
            train_dataset=train,
            data_collator=DataCollatorWithPadding(tokenizer),
        )
        trainer.train()
        output = trainer.predict(validation)
    logits = output.predictions
    predictions = logits.argmax(-1) if GLUE[name].labels else logits[:, 0]
    records = [{"label": label, "prediction": p.item()} for label, p in zip(output.label_ids, predictions, strict=True)]
    return GLUE[name].score(GLUE[name].validation[0], records)["score"]


if __name__ == "__main__":
    raise SystemExit(main())
