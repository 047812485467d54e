"""Whole training steps (data, forward, backward, clipping, optimizer) of BERT-base, in one run, interleaved.

Compares Hugging Face's BertForMaskedLM, compiled, with our `standard` and `shared`, compiled; equivalence first. Also
measures what the data loader costs, by feeding `standard` the same batch again and again. Writes a record:

    python benchmarks/pretrain_step.py --data CORPUS --output results/HARDWARE/DATE-pretrain-step
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, SequentialSampler
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from sharedqkv import SharedQKVConfig, SharedQKVForMaskedLM
from sharedqkv.accounting import forward_flops_per_token
from sharedqkv.data.dataset import MaskedBatches, collate
from sharedqkv.data.masking import Masking, Vocabulary
from sharedqkv.data.shards import ShardedRows
from sharedqkv.models.losses import IGNORED
from sharedqkv.training.callbacks import peak_flops
from sharedqkv.training.run_folder import environment, now

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Contestant:
    """A compiled model with its optimizer; `step` takes a batch of `MaskedBatches`."""

    def __init__(self, name: str, model: torch.nn.Module, full_labels: bool):
        self.name = name
        self.full_labels = full_labels
        self.model = model.to(DEVICE).train()
        self.compiled = torch.compile(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=DEVICE == "cuda")

    def loss(self, batch: dict[str, torch.Tensor], model: Any) -> torch.Tensor:
        inputs = {name: tensor.to(DEVICE, non_blocking=True) for name, tensor in batch.items()}
        if self.full_labels:  # Hugging Face's head takes a label for every token
            positions, labels = inputs.pop("masked_positions"), inputs["labels"]
            spread = torch.full_like(inputs["input_ids"], IGNORED)
            inputs["labels"] = spread.scatter(1, positions, labels)
        with torch.autocast(DEVICE, torch.bfloat16):
            return model(**inputs).loss

    def step(self, batch: dict[str, torch.Tensor]) -> None:
        self.loss(batch, self.compiled).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def contestants(vocab_size: int, dropout: float, layers: int) -> list[Contestant]:
    shape = {
        "vocab_size": vocab_size,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "num_hidden_layers": layers,
    }
    torch.manual_seed(0)
    theirs = BertForMaskedLM._from_config(BertConfig(**shape), attn_implementation="sdpa")
    ours = SharedQKVForMaskedLM._from_config(SharedQKVConfig.from_size("base", **shape), attn_implementation="sdpa")
    ours.load_state_dict(theirs.state_dict())
    shared = SharedQKVForMaskedLM._from_config(
        SharedQKVConfig.from_size("base", attention_variant="shared", **shape), attn_implementation="sdpa"
    )
    return [
        Contestant("hf_bert", theirs, full_labels=True),
        Contestant("standard", ours, full_labels=False),
        Contestant("shared", shared, full_labels=False),
    ]


@torch.no_grad()
def check_equivalence(models: list[Contestant], batch: dict[str, torch.Tensor]) -> float:
    """Standard holds BERT's weights: without dropout both must give the same loss."""
    theirs, ours = models[0], models[1]
    losses = [contestant.loss(batch, contestant.model.eval()).item() for contestant in (theirs, ours)]
    for contestant in (theirs, ours):
        contestant.model.train()
    difference = abs(losses[0] - losses[1])
    if difference > 5e-3:
        raise SystemExit(f"standard is not BERT: losses {losses}; no speed is worth printing")
    return difference


def synchronise() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def measure(contestant: Contestant, batches: Any, steps: int) -> float:
    synchronise()
    start = time.perf_counter()
    for _ in range(steps):
        contestant.step(next(batches))
    synchronise()
    return (time.perf_counter() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20, help="steps a round")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--layers", type=int, default=12)
    options = parser.parse_args()

    rows = ShardedRows.open(options.data, "train")
    vocabulary = Vocabulary.of(AutoTokenizer.from_pretrained(Path(options.data) / "tokenizer"))
    dataset = MaskedBatches(rows, Masking(vocabulary, seed=0), 10**9, shuffle_seed=0)
    loader = DataLoader(
        dataset,
        options.rows,
        sampler=SequentialSampler(dataset),
        collate_fn=collate,
        num_workers=options.workers,
        pin_memory=DEVICE == "cuda",
        prefetch_factor=4 if options.workers else None,
    )
    batches = iter(loader)
    resident = {name: tensor.to(DEVICE) for name, tensor in next(batches).items()}
    models = contestants(rows.manifest.vocab_size, options.dropout, options.layers)
    difference = check_equivalence(models, resident)
    print(f"equivalence: loss of standard and HF BERT differ by {difference:.1e}")

    times: dict[str, list[float]] = {name: [] for name in ("hf_bert", "standard", "shared", "standard, no loader")}
    memory: dict[str, float] = {}
    for contestant in models:  # compile and warm up
        if DEVICE == "cuda":
            torch.cuda.reset_peak_memory_stats()
        measure(contestant, batches, 5)
        if DEVICE == "cuda":
            memory[contestant.name] = torch.cuda.max_memory_allocated() / 2**30
    same = iter(lambda: resident, None)
    for number in range(options.rounds):
        for contestant in models:
            times[contestant.name].append(measure(contestant, batches, options.steps))
        times["standard, no loader"].append(measure(models[1], same, options.steps))
        print(
            f"round {number + 1}: " + ", ".join(f"{name} {1e3 * t[-1]:.1f} ms" for name, t in times.items()), flush=True
        )

    tokens = options.rows * rows.length
    results = {name: summary(values, tokens) for name, values in times.items()}
    for name in ("standard", "shared"):
        config = SharedQKVConfig.from_size("base", attention_variant=name, vocab_size=rows.manifest.vocab_size)
        per_token = 3 * forward_flops_per_token(config, rows.length)
        results[name]["train_mflop_per_token"] = per_token / 1e6
        if (peak := peak_flops()) is not None:
            results[name]["mfu"] = per_token * results[name]["tokens_per_s"] / peak
    medians = {name: statistics.median(values) for name, values in times.items()}
    record = {
        "benchmark": "pretrain_step",
        "date": now(),
        "config": {
            **vars(options),
            "length": rows.length,
            "vocab_size": rows.manifest.vocab_size,
            "precision": "bf16 autocast",
        },
        "equivalence_loss_difference": difference,
        "results": results,
        "ratios": {
            "standard over hf_bert": medians["hf_bert"] / medians["standard"],
            "shared over standard": medians["standard"] / medians["shared"],
            "loader share": 1 - medians["standard, no loader"] / medians["standard"],
        },
        "peak_memory_gib_three_models_resident": memory,
        "environment": environment(),
    }
    output = Path(options.output)
    output.mkdir(parents=True, exist_ok=True)
    (output / "record.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps({"results": results, "ratios": record["ratios"], "memory": memory}, indent=2))


def summary(seconds: list[float], tokens: int) -> dict[str, float]:
    return {
        "step_ms_median": 1e3 * statistics.median(seconds),
        "step_ms_min": 1e3 * min(seconds),
        "step_ms_max": 1e3 * max(seconds),
        "tokens_per_s": tokens / statistics.median(seconds),
    }


if __name__ == "__main__":
    main()
