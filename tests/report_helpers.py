"""A study's folder made by hand: every part a report reads, with planted scores, and no training."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from sharedqkv import SharedQKVConfig
from sharedqkv.accounting import count_parameters
from sharedqkv.data.manifest import FileRecord, Manifest, ShardRecord, SplitRecord
from sharedqkv.robustness.conditions import conditions_for
from sharedqkv.robustness.tried import cell_file
from sharedqkv.tasks.cells import Cell, predictions_file, write_json, write_predictions
from sharedqkv.tasks.task import Split

ENTRANTS = {"standard": 0.90, "symmetric": 0.84, "pairwise": 0.91, "shared": 0.80, "narrow": 0.86}
"""Variant → the share of answers that are right."""
TASKS = ("acceptability", "sst2", "span_qa")
NOISES = ("keyboard", "gaussian")
SEVERITIES = (1, 5)
DOMAINS = ("imdb", "yelp")
LENGTH, VOCABULARY = 32, 200


def make_study(
    folder: Path,
    entrants: dict[str, float] | None = None,
    seeds: int = 2,
    finetune_seeds: int = 2,
    examples: int = 120,
    **info: Any,
) -> Path:
    """`info` replaces entries of study.json."""
    entrants = entrants or ENTRANTS
    for number, (variant, right) in enumerate(entrants.items()):
        for seed in range(seeds):
            make_pretraining(folder / "pretrain" / variant / str(seed), variant, seed, 2.2 - right + 0.02 * seed)
            make_finetuning(
                folder / "finetune" / variant / str(seed), right, 10 * number + seed, finetune_seeds, examples
            )
    make_corpus(folder / "corpus")
    write_json(folder / "bench.json", make_bench(list(entrants)))
    write_json(folder / "maps.json", make_maps(list(entrants)))
    write_json(folder / "study.json", {**make_info(list(entrants), seeds), **info})
    return folder


def make_info(variants: list[str], seeds: int) -> dict[str, Any]:
    stages = ("pretrain", "finetune", "robust")
    names = [f"{stage}/{variant}/{seed}" for stage in stages for variant in variants for seed in range(seeds)]
    return {
        "name": "tiny",
        "title": "Does sharing <one> weight cost anything?",
        "description": "A made-up study for the tests.",
        "state": "done",
        "study": {},
        "study_yaml": "title: tiny\nvariants: [standard, shared]\n",
        "command": ["sharedqkv", "study", "my study.yaml"],
        "environment": {
            "python": "3.11.7",
            "platform": "Linux",
            "packages": {"torch": "2.13.0"},
            "devices": ["cpu"],
            "cpu_count": 2,
            "git": {"sha": "0123abc", "dirty": False},
        },
        "started": "2026-01-01T00:00:00+00:00",
        "ended": "2026-01-01T00:09:00+00:00",
        "baseline": variants[0],
        "entrants": [
            {
                "name": variant,
                "slug": variant,
                "variant": variant,
                "attention_options": {},
                "position_embedding_type": "absolute",
                "model": {},
            }
            for variant in variants
        ],
        "tasks": list(TASKS),
        "noises": list(NOISES),
        "severities": list(SEVERITIES),
        "noise_seeds": [0],
        "domains": list(DOMAINS),
        "cells": {
            name: {"state": "done", "seconds": 1.5, "error": None} for name in ["prepare", *names, "maps", "bench"]
        },
    }


def make_pretraining(
    folder: Path, variant: str, seed: int, final_loss: float, tokens: int = 300_000, **recipe: Any
) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    info = {"kind": "pretrain", "state": "done", "eval_loss": final_loss, "recipe": recipe}
    write_json(folder / "run.json", info)
    steps = range(10, 310, 10)
    records: list[dict[str, Any]] = []
    for step in steps:
        loss = final_loss + 3 * np.exp(-step / 60)
        noisy = loss + 0.05 * rng.normal()
        seen = {"step": step, "tokens": step * tokens // 300}
        records.append({**seen, "loss": noisy, "seconds": 0.5, "tokens_per_s": 20000.0})
        if step % 100 == 0:
            records.append({**seen, "eval_loss": loss})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    tiny_model(variant).save_pretrained(folder / "model")


def tiny_model(variant: str) -> SharedQKVConfig:
    return SharedQKVConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        attention_variant=variant,
    )


def make_finetuning(folder: Path, right: float, luck: int, seeds: int, examples: int) -> None:
    """Runs differ in luck; noise and other domains take a part of what is right."""
    folder.mkdir(parents=True)
    write_json(folder / "run.json", {"kind": "finetune", "state": "done"})
    for task in TASKS:
        for seed in range(seeds):
            rng = np.random.default_rng([luck, seed, len(task)])
            mine = right + 0.01 * rng.normal()
            split = Split(task, "validation")
            write_predictions(predictions_file(folder, split, seed), make_answers(task, mine, rng, examples))
            record = {"splits": {f"{task}/validation": {"scored_as": task}}}
            write_json(Cell(folder, task, seed).record_file, record)
            for condition in conditions_for(task, NOISES, SEVERITIES, (0,), DOMAINS)[0]:
                records = [
                    {**answer, "severity": severity}
                    for severity in condition.severities
                    for answer in make_answers(
                        task, mine - (0.06 + 0.05 * severity) * (condition.name != "clean"), rng, examples
                    )
                ]
                file = cell_file(folder, task, condition, seed)
                write_predictions(file, records)
                chance = 0.0 if task == "span_qa" else 0.5
                write_json(file.with_suffix(".json"), {"chance": chance, "counts": {}})


def make_answers(task: str, right: float, rng: np.random.Generator, examples: int) -> list[dict[str, Any]]:
    answers = []
    for index, is_right in enumerate((rng.random(examples) < right).tolist()):
        if task == "span_qa":
            scores = {"text": "anna", "span": 0.0, "null_odds": 0.0}
            answer = {"label": ["anna"], "prediction": "anna" if is_right else "bob", "scores": scores}
        else:
            answer = {"label": index % 2, "prediction": index % 2 if is_right else 1 - index % 2, "scores": []}
        answers.append({"id": f"q{index:03}", **answer})
    return answers


def make_corpus(folder: Path) -> None:
    """Its validation text has tokens 10 to 17 equally often: its unigram entropy is the logarithm of 8."""
    folder.mkdir(parents=True)
    rows = np.tile(np.arange(10, 18, dtype=np.uint16), (4, LENGTH // 8))
    rows[:, 0], rows[:, -1] = 2, 3
    rows = np.concatenate([rows, np.full((1, LENGTH), 0, np.uint16)])
    rows[-1, :8] = np.array([10, 17] * 4)  # what [CLS] and [SEP] have replaced
    np.save(folder / "validation.npy", rows)
    shard = ShardRecord(FileRecord("validation.npy", 0, ""), len(rows), rows.size, None)
    split = SplitRecord(documents=1, rows=len(rows), tokens=rows.size, dropped_tokens=0, shards=(shard,))
    special = {"pad_id": 0, "cls_id": 2, "sep_id": 3, "mask_id": 4}
    Manifest(
        1, "chunks", LENGTH, "uint16", VOCABULARY, "", **special, settings={}, sources=(), train=split, validation=split
    ).write(folder)


def make_bench(slugs: list[str]) -> dict[str, Any]:
    return {
        "device": "cpu",
        "threads": 1,
        "rows": 8,
        "length": LENGTH,
        "bf16": False,
        "entrants": {
            slug: {
                "train_step_s": [0.100 - 0.004 * number + 0.001 * repeat for repeat in range(3)],
                "forward_s": [0.030 - 0.001 * number] * 3,
                "peak_memory_bytes": 50_000_000 - 1_000_000 * number,
            }
            for number, slug in enumerate(slugs)
        },
    }


def make_bench_record(step_s: dict[str, list[float]], positions: str = "absolute", forward: bool = False) -> dict:
    """As `sharedqkv bench` writes it, on models of the study's size; a name without a backend is a peer."""
    about = {
        name: {
            "backend": "sdpa" if ":" not in name else name.partition(":")[2].split(",")[0],
            "parameters": 0 if ":" not in name else count_parameters(tiny_model(name.partition(":")[0])).model,
        }
        for name in step_s
    }
    results = [{"entrant": name, "peak_memory_bytes": 1_000_000 * len(name)} for name in step_s]
    train = {"results": results, "seconds_of_rounds": step_s, "equality": []}
    config = {"size": "tiny", "rows": 64, "length": LENGTH, "positions": positions, "bf16": True, "compile": True}
    passes = {"train": train} | ({"forward": train} if forward else {})
    return {"config": config, "device": "NVIDIA H200", "threads": 4, "entrants": about, "passes": passes}


def make_maps(slugs: list[str]) -> dict[str, Any]:
    tokens = ["[CLS]", "the", "dogs", "near", "the", "old", "house", "bark", ".", "[SEP]"]
    rng = np.random.default_rng(0)
    entrants = {}
    for slug in slugs:
        logits = 2 * rng.normal(size=(2, len(tokens), len(tokens)))
        weights = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
        entrants[slug] = weights.round(4).tolist()
    return {"sentence": "the dogs near the old house bark.", "tokens": tokens, "entrants": entrants}
