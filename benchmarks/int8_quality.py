"""What int8 changes: how large the files are, and how near the embeddings of a real checkpoint stay.

Embeddings are the mean of the last hidden states, as sentence encoders take it. Needs torchao.

    python benchmarks/int8_quality.py --model FOLDER --parquet glue/sst2/validation-00000-of-00001.parquet \\
        --column sentence --output results/HARDWARE/DATE-int8
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import pyarrow.parquet
import torch
from torch import Tensor

from sharedqkv import SharedQKVConfig, SharedQKVModel
from sharedqkv.data.tokenizer import load_tokenizer
from sharedqkv.interop.quantization import quantize_int8
from sharedqkv.tasks.cells import write_json
from sharedqkv.training.run_folder import environment, now


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a BERT checkpoint with its tokenizer")
    parser.add_argument("--parquet", required=True, type=Path, help="file with texts")
    parser.add_argument("--column", required=True)
    parser.add_argument("--count", type=int, default=150, help="texts taken")
    parser.add_argument("--size", default="base", help="of the models whose files are weighed")
    parser.add_argument("--output", type=Path, help="folder for the record")
    options = parser.parse_args()
    texts = pyarrow.parquet.read_table(options.parquet, columns=[options.column])[options.column][: options.count]
    cosines = cosines_to_original(options.model, texts.to_pylist())
    megabytes = {variant: weigh(variant, options.size) for variant in ("standard", "shared")}
    print(f"cosine to the original: {min(cosines):.4f} at least, {statistics.median(cosines):.4f} in the median")
    for variant, (full, small) in megabytes.items():
        print(f"{variant}, {options.size}: {full:.0f} MB, int8 {small:.0f} MB")
    if options.output is not None:
        record = {
            "benchmark": "int8_quality",
            "date": now(),
            "texts": len(cosines),
            "size": options.size,
            "cosines": cosines,
            "megabytes": {name: {"float32": full, "int8": small} for name, (full, small) in megabytes.items()},
            "environment": environment(),
        }
        write_json(options.output / "int8_quality.json", record)
    return 0


def cosines_to_original(folder: str, texts: list[str]) -> list[float]:
    model = SharedQKVModel.from_pretrained(folder).eval()
    tokenizer = load_tokenizer(folder)
    small = quantize_int8(model)
    encoded = [tokenizer(text, return_tensors="pt") for text in texts]
    return [
        torch.cosine_similarity(embedding(model, inputs), embedding(small, inputs), dim=0).item() for inputs in encoded
    ]


@torch.inference_mode()
def embedding(model: SharedQKVModel, inputs: dict[str, Tensor]) -> Tensor:
    return model(**inputs).last_hidden_state[0].mean(dim=0)


def weigh(variant: str, size: str) -> tuple[float, float]:
    """In MB: in full, and in int8."""
    model = SharedQKVModel(SharedQKVConfig.from_size(size, attention_variant=variant))
    return megabytes_of(model), megabytes_of(quantize_int8(model))


def megabytes_of(model: SharedQKVModel) -> float:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return sum(file.stat().st_size for file in Path(folder).glob("*.safetensors")) / 1e6


if __name__ == "__main__":
    raise SystemExit(main())
