"""Texts of different lengths through the encoder: padded as they come, sorted by length, packed.

Lengths are those of real texts; weights are random. Layouts take turns, on a GPU if there is one.

    python benchmarks/unpadding.py --tokenizer VOCAB --parquet glue/mnli/validation_matched-00000-of-00001.parquet \\
        --columns premise hypothesis
"""

import argparse
import statistics
import time
from pathlib import Path

import pyarrow.parquet
import torch

from sharedqkv import SharedQKVConfig, SharedQKVModel
from sharedqkv.data.tokenizer import load_tokenizer
from sharedqkv.models.unpadding import LAYOUTS, encode_sequences
from sharedqkv.tasks.cells import write_json
from sharedqkv.training.run_folder import environment

Sequences = list[list[int]]


def read_sequences(options: argparse.Namespace) -> Sequences:
    table = pyarrow.parquet.read_table(options.parquet, columns=options.columns).slice(0, options.count)
    tokenizer = load_tokenizer(options.tokenizer)
    texts = [table.column(name).to_pylist() for name in options.columns]
    return tokenizer(*texts, truncation=True, max_length=options.max_length)["input_ids"]


@torch.no_grad()
def encode_padded(model: SharedQKVModel, sequences: Sequences, rows: int) -> list[torch.Tensor]:
    """What most code does: batches in the order given, each padded to its longest row."""
    encoded = []
    for first in range(0, len(sequences), rows):
        batch = [torch.tensor(sequence) for sequence in sequences[first : first + rows]]
        ids = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)
        lengths = torch.tensor([len(sequence) for sequence in batch])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        hidden = model(ids.to(model.device), attention_mask=mask.to(model.device)).last_hidden_state
        encoded += [states[:length] for states, length in zip(hidden, lengths.tolist(), strict=True)]
    return encoded


def seconds(encode, model: SharedQKVModel) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    encode()
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--parquet", required=True, type=Path)
    parser.add_argument("--columns", required=True, nargs="+", help="one text column, or two for pairs")
    parser.add_argument("--count", type=int, default=512, help="texts taken")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--rows", type=int, default=32, help="rows of a padded batch")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--backend", default="sdpa")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write all times there")
    options = parser.parse_args()
    sequences = read_sequences(options)
    lengths = [len(sequence) for sequence in sequences]
    print(f"{len(lengths)} texts, {statistics.mean(lengths):.0f} tokens in the mean, {max(lengths)} at most")
    torch.manual_seed(0)
    config = SharedQKVConfig.from_size("base", attention_variant="shared", num_hidden_layers=options.layers)
    model = SharedQKVModel._from_config(config, attn_implementation=options.backend).eval().fold()
    model = model.to("cuda" if torch.cuda.is_available() else "cpu", getattr(torch, options.dtype))
    contestants = {"padded": lambda: encode_padded(model, sequences, options.rows)}
    for layout in LAYOUTS:
        contestants[layout] = lambda layout=layout: encode_sequences(model, sequences, layout=layout)

    expected = contestants["padded"]()  # warms up, too
    for layout in LAYOUTS:
        pairs = zip(contestants[layout](), expected, strict=True)
        print(f"{layout} against padded: largest difference {max((a - b).abs().max().item() for a, b in pairs):.1e}")
    times = {name: [] for name in contestants}
    for _ in range(options.rounds):
        for name, encode in contestants.items():
            times[name].append(seconds(encode, model))
    for name, own in times.items():
        walls, cpus = (
            [statistics.median(pair[kind] for pair in of) for of in (own, times["padded"])] for kind in (0, 1)
        )
        print(
            f"{name:>7}: {walls[0]:6.2f} s, {walls[1] / walls[0]:.2f} × padded; {cpus[1] / cpus[0]:.2f} × by CPU time"
        )
    if options.json:
        told = {**vars(options), "parquet": options.parquet.name, "tokenizer": None, "json": None}
        record = {"options": told, "lengths": lengths, "wall_and_cpu_seconds": times, "environment": environment()}
        write_json(options.json, record)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
