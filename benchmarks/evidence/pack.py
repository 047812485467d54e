"""Text for a machine that little can be sent to: part of Wikipedia and Books, 2:1, small enough to travel.

SOURCE is a folder with `wikipedia/` and `books/` in the layout of the hub (`train-*.parquet`, `validation*.parquet`,
column `text`). OUTPUT gets `wikipedia/` and `books/` with `train.jsonl.xz` and `validation.jsonl.xz`, which
`sharedqkv prepare` reads as they are. Training text is taken from the training files only, and held-out text from the
validation files only; a held-out document that begins like one of the training text is left out and told.

    python benchmarks/evidence/pack.py SOURCE OUTPUT --train-mb 141
"""

import argparse
import json
import lzma
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

SHARES = {"wikipedia": 0.7, "books": 0.3}
"""Of the bytes. Books have more tokens a byte, so that this makes rows 2:1."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--train-mb", type=float, required=True, help="megabytes of text to train on, before packing")
    parser.add_argument("--held-out-mb", type=float, default=4.2, help="megabytes of text to hold out (default: 4.2)")
    options = parser.parse_args()
    jobs = [
        (
            options.source / name,
            options.output / name,
            share * options.train_mb * 1e6,
            share * options.held_out_mb * 1e6,
        )
        for name, share in SHARES.items()
    ]
    with ProcessPoolExecutor(len(jobs)) as pool:
        for line in pool.map(pack, *zip(*jobs, strict=True)):
            print(line, flush=True)


def pack(source: Path, output: Path, train_bytes: float, held_out_bytes: float) -> str:
    output.mkdir(parents=True, exist_ok=True)
    train = list(first_documents(source, "train", train_bytes))
    beginnings = {beginning(text) for text in train}
    offered = list(first_documents(source, "validation", held_out_bytes))
    held_out = [text for text in offered if beginning(text) not in beginnings]
    packed = {
        split: write(output / f"{split}.jsonl.xz", texts)
        for split, texts in (("train", train), ("validation", held_out))
    }
    return (
        f"{output}: {len(train)} documents in {packed['train'] / 2**20:.1f} MiB to train on, {len(held_out)} in "
        f"{packed['validation'] / 2**20:.1f} MiB held out; {len(offered) - len(held_out)} left out for beginning alike"
    )


def first_documents(source: Path, split: str, most_bytes: float) -> Iterator[str]:
    import pyarrow.parquet as pq

    files = sorted(source.glob(f"{split}*.parquet"))
    if not files:
        raise FileNotFoundError(f"{source} has no {split}*.parquet: expected the layout of the hub")
    taken = 0
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(1000, columns=["text"]):
            for text in batch["text"].to_pylist():
                taken += len(text.encode())
                if taken > most_bytes:
                    return
                yield text
    raise ValueError(
        f"{source} has {taken / 1e6:.1f} MB of {split} text, less than the {most_bytes / 1e6:.1f} asked for"
    )


def beginning(text: str) -> str:
    """The title of an article; of a piece of a book, its first words."""
    return text.strip().split("\n", 1)[0][:200]


def write(path: Path, texts: Iterable[str]) -> int:
    with lzma.open(path, "wt", encoding="utf-8", preset=9 | lzma.PRESET_EXTREME) as file:
        for text in texts:
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    return path.stat().st_size


if __name__ == "__main__":
    main()
