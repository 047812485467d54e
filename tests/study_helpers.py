"""A study small enough for tests."""

from pathlib import Path

TINY = """\
title: A tiny study
description: For tests.
variants: [standard, shared]
seeds: 2  # pre-training
corpus:
  world: 60
  train: 24
  validation: 16
  out_of_domain: 16
  train_vocab_size: 300
  length: 32
pretrain:
  recipe: tiny_cpu
  model: {num_hidden_layers: 1, hidden_size: 16, num_attention_heads: 2, intermediate_size: 32}
  rows_per_step: 4
  rows_per_device: 4
  max_steps: 4
  logging_steps: 2
  eval_steps: 4
  save_steps: 2
  eval_rows: 8
finetune:
  tasks: [sentiment, entailment]
  seeds: 2
  epochs: 1
  batch_size: 8
  max_length: 48
robust:
  noise: [keyboard, gaussian]
  severity: [1, 5]
  domains: [sentiment_out_of_domain]
bench: {rows: 2, length: 16, repeats: 2}
sentence: The old baker smiles.
"""


def write_study(folder: Path, text: str = TINY) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)
