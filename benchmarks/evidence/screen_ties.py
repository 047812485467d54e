"""Which tie is worth a GPU? A small model each, on a CPU, for the beginning of training: who leaves the plateau?

    sharedqkv prepare --source TEXT --train-vocab-size 4096 --length 64 --validation-fraction 0.01 --output CORPUS
    pip install --no-deps benchmarks/evidence/ties
    python benchmarks/evidence/screen_ties.py standard shared shared:init=signs filtered --corpus CORPUS --output FOLDER

Four layers × 128, eight heads, rotary positions, pre-LN; 64 rows of 64 tokens a step, AdamW at 0.002 with 75 steps of
warm-up and no decay, unless options say otherwise. Rows and masks depend on the seed alone. One seed can call nothing:
this only sorts ideas.
"""

import argparse
import json
import re
import time
from collections.abc import Iterator
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sharedqkv.data.manifest import Manifest
from sharedqkv.models import SharedQKVConfig, SharedQKVForMaskedLM
from sharedqkv.models.specs import config_from_spec
from sharedqkv.training.run_folder import environment, now

LEARNING_RATE = 2e-3
MASKED = 0.15
IGNORED = -100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="+", metavar="VARIANT[:key=value,...]")
    parser.add_argument("--corpus", type=Path, required=True, help="folder that `sharedqkv prepare` made")
    parser.add_argument("--output", type=Path, required=True, help="folder for a file of each variant")
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=128, help="of the model; the feed-forward part has four times it")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--rows", type=int, default=64, help="of a step")
    parser.add_argument("--warmup", type=int, default=75, help="steps in which the rate rises")
    parser.add_argument("--decay", type=int, default=0, help="last steps, in which the rate falls to zero")
    parser.add_argument("--every", type=int, default=350, help="steps between held-out losses")
    parser.add_argument("--processes", type=int, default=2, help="variants at once, a thread each (default: 2)")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    jobs = [(variant, options) for variant in options.variants]
    with Pool(options.processes, maxtasksperchild=1) as pool:
        for line in pool.imap_unordered(screen, jobs, chunksize=1):
            print(line, flush=True)
    return 0


def screen(job: tuple[str, argparse.Namespace]) -> str:
    variant, options = job
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    train, validation = (np.load(options.corpus / f"{split}-00000.npy") for split in ("train", "validation"))
    manifest = Manifest.read(options.corpus)
    model = SharedQKVForMaskedLM(_config(variant, manifest, options))
    attention = sum(weight.numel() for weight in model.base_model.encoder.layer[0].attention.parameters())
    optimizer = _optimizer(model)
    losses, held_out, began = [], {}, time.monotonic()
    for step, (ids, labels) in enumerate(_batches(train, manifest, options), 1):
        left = min(1, (options.steps - step + 1) / options.decay) if options.decay else 1
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1, step / options.warmup) * left
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % options.every == 0 or step == options.steps:
            held_out[step] = _held_out_loss(model, validation, manifest, options.rows)
    means = [round(float(np.mean(part)), 4) for part in np.split(np.array(losses), range(50, len(losses), 50))]
    record = {
        "variant": variant,
        "seed": options.seed,
        "steps": options.steps,
        "parameters_of_an_attention_block": attention,
        "training_loss_of_50_steps_each": means,
        "held_out_loss": held_out,
        "seconds": round(time.monotonic() - began, 1),
        "ended": now(),
        "environment": environment(),
    }
    name = re.sub(r"\W+", "-", variant)
    (options.output / f"{name}-{options.seed}.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    return f"{variant:32} {attention:8,} {record['seconds']:6.0f} s  {held_out}"


def _config(variant: str, manifest: Manifest, options: argparse.Namespace) -> SharedQKVConfig:
    return config_from_spec(
        variant,
        "tiny",
        vocab_size=manifest.vocab_size,
        hidden_size=options.width,
        num_hidden_layers=4,
        num_attention_heads=options.heads,
        intermediate_size=4 * options.width,
        max_position_embeddings=manifest.length,
        position_embedding_type="rotary",
        norm_placement="pre",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def _optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    matrices = [weight for weight in model.parameters() if weight.ndim >= 2]
    others = [weight for weight in model.parameters() if weight.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.98), fused=True)


def _batches(rows: np.ndarray, manifest: Manifest, options: argparse.Namespace) -> Iterator[tuple[Tensor, Tensor]]:
    order = np.random.default_rng(options.seed).permutation(len(rows))
    generator = torch.Generator().manual_seed(options.seed)
    for step in range(options.steps):
        start = step * options.rows % (len(order) - options.rows)
        yield _masked(rows[order[start : start + options.rows]], manifest, generator)


def _masked(rows: np.ndarray, manifest: Manifest, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """BERT's masking: of 15 % of the tokens 80 % become [MASK], 10 % another word, 10 % stay."""
    ids = torch.from_numpy(rows.astype(np.int64))
    first_word = manifest.mask_id + 1  # of a tokenizer that `prepare` trained
    chosen = (torch.rand(ids.shape, generator=generator) < MASKED) & (ids >= first_word)
    fate = torch.rand(ids.shape, generator=generator)
    others = torch.randint(first_word, manifest.vocab_size, ids.shape, generator=generator)
    seen = torch.where(chosen & (fate < 0.8), manifest.mask_id, torch.where(chosen & (fate >= 0.9), others, ids))
    return seen, torch.where(chosen, ids, IGNORED)


@torch.no_grad()
def _held_out_loss(model: torch.nn.Module, rows: np.ndarray, manifest: Manifest, at_once: int) -> float:
    model.eval()
    generator = torch.Generator().manual_seed(7)
    total, count = 0.0, 0
    for start in range(0, len(rows), at_once):
        ids, labels = _masked(rows[start : start + at_once], manifest, generator)
        hidden = int((labels != IGNORED).sum())
        total += float(model(input_ids=ids, labels=labels).loss) * hidden
        count += hidden
    model.train()
    return round(total / count, 4)


if __name__ == "__main__":
    raise SystemExit(main())
