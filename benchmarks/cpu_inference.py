"""Inference on a CPU: transformers' BERT, `standard`, `shared` and `shared` folded, models taking turns.

Random weights and tokens, full rows, no task head. Outputs are compared first: a model that computes something else
gets no time. Other processes spoil wall times, so these are told of the runs in which others did next to nothing. CPU
times are told of all runs, and need OMP_WAIT_POLICY=PASSIVE: a thread that waits counts as busy otherwise.

    python benchmarks/cpu_inference.py --rows 1 16
    python benchmarks/cpu_inference.py --rows 1 16 --compile --int8
    ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 python benchmarks/cpu_inference.py --rows 1 16 --dtype bfloat16
"""

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
import torch._inductor.config as inductor_config
from transformers import BertConfig, BertModel

from sharedqkv import SharedQKVConfig, SharedQKVModel
from sharedqkv.interop.quantization import quantize_int8

DISTURBED = 0.03
"""Share of the machine's time from which on others spoil a run; the system counts in hundredths of a second."""
WARM_UP = 2
Forward = Callable[[], torch.Tensor]


class Times(NamedTuple):
    """Of one run, in milliseconds."""

    wall: float
    cpu: float
    undisturbed: bool


def models(options: argparse.Namespace) -> dict[str, torch.nn.Module]:
    config = SharedQKVConfig.from_size(options.size)
    bert = BertModel(
        BertConfig(
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            intermediate_size=config.intermediate_size,
        )
    )
    standard = SharedQKVModel(config)
    standard.load_state_dict(bert.state_dict())
    shared, folded = (
        SharedQKVModel(SharedQKVConfig.from_size(options.size, attention_variant="shared")) for _ in range(2)
    )
    for name, parameter in shared.named_parameters():
        if name.endswith("_scale"):
            torch.nn.init.normal_(parameter, mean=1.0, std=0.3)
    folded.load_state_dict(shared.state_dict())
    tied = SharedQKVModel(SharedQKVConfig.from_size(options.size, attention_variant="tied"))
    dtype = getattr(torch, options.dtype)
    named = {
        "bert": bert,
        "standard": standard,
        "shared": shared,
        "shared, folded": folded.fold(),
        "tied": tied,
    }
    named = {name: model.to(dtype).eval() for name, model in named.items()}
    if options.int8:
        named |= {"standard, int8": quantize_int8(standard), "shared, int8": quantize_int8(shared)}
    return named


def check_equivalence(forwards: dict[str, Forward], dtype: str) -> None:
    exact = 1e-5 if dtype == "float32" else 3e-2
    for one, other, tolerance in (
        ("bert", "standard", exact),
        ("shared", "shared, folded", exact),
        ("standard", "standard, int8", 0.1),
        ("shared", "shared, int8", 0.1),
    ):
        if other not in forwards:
            continue
        expected, found = forwards[one](), forwards[other]()
        error = ((found - expected).norm() / expected.norm()).item()
        print(f"{other} against {one}: relative error {error:.1e}")
        if error > tolerance:
            raise SystemExit(f"{other} does not compute what {one} computes: no times")


def busy_seconds() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def timed(forward: Forward) -> Times:
    busy, cpu, wall = busy_seconds(), time.process_time(), time.perf_counter()
    forward()
    wall, cpu, busy = time.perf_counter() - wall, time.process_time() - cpu, busy_seconds() - busy
    undisturbed = busy - cpu < DISTURBED * wall * (os.cpu_count() or 1)
    return Times(1e3 * wall, 1e3 * cpu, undisturbed)


def time_in_turns(forwards: dict[str, Forward], wanted: int, patience_s: float) -> dict[str, list[Times]]:
    """Rounds in which each model has its turn, in an order of chance, until each was undisturbed often enough."""
    for forward in forwards.values():
        for _ in range(WARM_UP):
            forward()
    times: dict[str, list[Times]] = {name: [] for name in forwards}
    end = time.perf_counter() + patience_s
    while time.perf_counter() < end and any(sum(t.undisturbed for t in own) < wanted for own in times.values()):
        for name in random.sample(list(forwards), len(forwards)):
            times[name].append(timed(forwards[name]))
    return times


def report(times: dict[str, list[Times]]) -> None:
    walls = {name: [t.wall for t in own if t.undisturbed] for name, own in times.items()}
    for name, own in times.items():
        cpu, of_standard = (statistics.median(t.cpu for t in which) for which in (own, times["standard"]))
        text = f"{name:>15}: {cpu:7.1f} ms of CPU in {len(own)} runs, {of_standard / cpu:.3f} × standard"
        if walls[name] and walls["standard"]:
            wall, of_standard = statistics.median(walls[name]), statistics.median(walls["standard"])
            text += f"; {wall:7.1f} ms in {len(walls[name])} undisturbed runs, {of_standard / wall:.3f} × standard"
        print(text, flush=True)


@torch.inference_mode()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--compile", action="store_true", help="with inductor, weights frozen and packed")
    parser.add_argument("--int8", action="store_true", help="two more models, quantised (needs torchao)")
    parser.add_argument("--rounds", type=int, default=20, help="undisturbed runs of each model")
    parser.add_argument("--patience", type=float, default=300, help="seconds to wait for so many undisturbed runs")
    parser.add_argument("--json", type=Path, help="write all times there")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if options.compile:
        inductor_config.freezing = True
    contestants = models(options)
    measured = {}
    for rows in options.rows:
        ids = torch.randint(5, 30000, (rows, options.length))
        print(
            f"\n{rows} × {options.length} tokens, {options.dtype}, {options.threads} threads, torch {torch.__version__}"
        )
        forwards = {}
        torch._dynamo.reset()  # past its limit of graphs a model would run uncompiled
        for name, model in contestants.items():
            forward = torch.compile(model, dynamic=False) if options.compile else model
            forwards[name] = lambda forward=forward, ids=ids: forward(input_ids=ids).last_hidden_state
        check_equivalence(forwards, options.dtype)
        measured[rows] = time_in_turns(forwards, options.rounds, options.patience)
        report(measured[rows])
    if options.json:
        options.json.write_text(
            json.dumps({"options": vars(options) | {"json": None}, "milliseconds": measured}) + "\n"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
