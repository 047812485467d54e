"""Time and memory of a training step and of a forward pass for a study: models take turns, medians are for the reader.

`sharedqkv bench` measures the same passes with more care.
"""

from collections.abc import Mapping
from typing import Any

import torch

from sharedqkv.accounting.bench.passes import Batch, ForwardPass, TrainStep, memory_of, seconds_of
from sharedqkv.models import SharedQKVConfig, SharedQKVForMaskedLM

_WARM_UP = 2


def time_models(
    configs: Mapping[str, SharedQKVConfig],
    rows: int,
    length: int,
    repeats: int,
    bf16: bool = False,
    compile: bool = False,
    attn_implementation: str = "sdpa",
    seed: int = 0,
) -> dict[str, Any]:
    """Seconds of every repeat. In each repeat every model has its turn, so that a slow moment hits all alike."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    passes = {}
    for name, config in configs.items():
        torch.manual_seed(seed)
        model = SharedQKVForMaskedLM._from_config(
            config, attn_implementation=attn_implementation, dtype=torch.float32
        ).to(device)
        batch = Batch.random(config.vocab_size, rows, length, device, seed)
        passes[name] = ForwardPass(model, batch, bf16, compile), TrainStep(model, batch, bf16, compile)
    measured: dict[str, dict[str, Any]] = {name: {"train_step_s": [], "forward_s": []} for name in configs}
    for repeat in range(_WARM_UP + repeats):
        for name, (forward, train_step) in passes.items():
            step_s, forward_s = seconds_of(train_step), seconds_of(forward)
            if repeat >= _WARM_UP:
                measured[name]["train_step_s"].append(step_s)
                measured[name]["forward_s"].append(forward_s)
    for name, (_, train_step) in passes.items():
        memory = memory_of(train_step)
        measured[name]["peak_memory_bytes"] = None if memory is None else memory["peak"]
    return {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "rows": rows,
        "length": length,
        "bf16": bf16,
        "compile": compile,
        "attn_implementation": attn_implementation,
        "entrants": measured,
    }
