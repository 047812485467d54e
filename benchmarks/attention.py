"""Attention alone: the fused kernels against SDPA's backends, in one run, interleaved, equality first.

    python benchmarks/attention.py --output results/HARDWARE/DATE-attention
    python benchmarks/attention.py --tune --lengths 128 512

`shared` does all of a shared layer's attention, scales included, `rotary` the rotation besides, and `key_value` has
queries of its own. Against them SDPA is given k = v = S with nothing left to scale (`bare`), the same with the scales
as compiled models apply them (`scaled`), also with the rotation (`turned`), and three tensors (`standard`). On a GPU
every contestant is a CUDA graph, so that no time of the host is measured.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from sharedqkv.attention.rotary import Rotation, rotate, rotation_for
from sharedqkv.kernels import shared_kv_attention
from sharedqkv.training.run_folder import environment, now

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SDPA_BACKENDS = (
    [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
    if DEVICE == "cuda"
    else [SDPBackend.MATH]
)
BYTES_PER_S = 4.2e12
FLOPS_PER_S = 700e12
TOLERANCE = 0.03
KINDS = ("bare", "scaled", "turned", "standard")
MATCHES = {"fused shared": "sdpa scaled", "fused rotary": "sdpa turned", "fused key_value": "sdpa bare"}
# The device waits a millisecond before each round, so that the host is ahead and launches cost nothing.
HEAD_START_CYCLES = 2_000_000

Attend = Callable[..., Tensor]


def compiled(function: Attend) -> Attend:
    torch._dynamo.config.recompile_limit = 64  # one graph for each length, with gradients and without
    return torch.compile(function, dynamic=False) if DEVICE == "cuda" else function


def shared(s: Tensor, scale: Tensor) -> Tensor:
    return shared_kv_attention(s, s, query_scale_HD=scale)


def key_value(q: Tensor, s: Tensor) -> Tensor:
    return shared_kv_attention(q, s)


def rotary(s: Tensor, query_scale: Tensor, key_scale: Tensor, rotation: Rotation) -> Tensor:
    return shared_kv_attention(s, s, query_scale_HD=query_scale, key_scale_HD=key_scale, rotation=rotation)


def bare(q: Tensor, s: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, s, s).transpose(1, 2)


@compiled
def times(states: Tensor, scale: Tensor) -> Tensor:
    return states * scale.to(states.dtype)


@compiled
def times_and_turned(s: Tensor, scale: Tensor, rotation: Rotation) -> Tensor:
    return rotate(s * scale.unsqueeze(1).to(s.dtype), rotation)


def scaled(s: Tensor, scale: Tensor) -> Tensor:
    return bare(times(s, scale.unsqueeze(1)), s)


def turned(s: Tensor, query_scale: Tensor, key_scale: Tensor, rotation: Rotation) -> Tensor:
    q, k = (times_and_turned(s, scale, rotation) for scale in (query_scale, key_scale))
    return standard(q, k, s)


def standard(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v).transpose(1, 2)


class Contestant:
    """One way of computing, forward or with its backward pass, ready to be run again and again."""

    def __init__(self, attend: Attend, inputs: list[Tensor], grad: Tensor | None, backend: SDPBackend | None):
        self.attend, self.inputs, self.grad, self.backend = attend, inputs, grad, backend
        self.results = self.compute()
        self.graph = None if DEVICE == "cpu" else self.capture()

    def compute(self) -> list[Tensor]:
        # Leaves of its own for every run: a backward pass waits for the stream on which its leaves were first used,
        # and a stream that is being captured must not wait for another.
        inputs = [tensor.detach().requires_grad_(self.grad is not None) for tensor in self.inputs]
        with sdpa_kernel(self.backend or SDPA_BACKENDS):
            out = self.attend(*inputs)
            return [out] if self.grad is None else [out, *torch.autograd.grad(out, inputs, self.grad)]

    def capture(self) -> "torch.cuda.CUDAGraph":
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.results = self.compute()
        graph.replay()
        return graph

    def start(self) -> Callable[[], float]:
        """Run, and give back what says how many seconds it took once the device is done."""
        if self.graph is None:
            start = time.perf_counter()
            self.compute()
            seconds = time.perf_counter() - start
            return lambda: seconds
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        self.graph.replay()
        after.record()
        return lambda: before.elapsed_time(after) / 1e3


def states(options: argparse.Namespace, length: int, count: int) -> list[Tensor]:
    """As projections leave them: heads side by side in a token, then seen as (B, H, L, D)."""
    shape = (options.tokens // length, length, options.heads * options.head_size)

    def one() -> Tensor:
        made = (0.5 * torch.randn(shape, device=DEVICE)).to(options.dtype)  # as spread as in a new model
        return made.unflatten(-1, (options.heads, -1)).transpose(1, 2)

    return [one() for _ in range(count)]


def contestants(options: argparse.Namespace, length: int, backward: bool) -> dict[str, Contestant]:
    torch.manual_seed(length)
    q, s, v = states(options, length, 3)
    scales = [1 + 0.2 * torch.randn(s.shape[1], s.shape[3], device=DEVICE) for _ in range(2)]
    rotation = rotation_for(torch.arange(length, device=DEVICE).unsqueeze(0), s.shape[3], 10_000.0, torch.float32)
    grad = torch.randn_like(q.transpose(1, 2)).contiguous() if backward else None
    ours = {
        "fused shared": (shared, [s, scales[0]]),
        "fused rotary": (partial(rotary, rotation=rotation), [s, *scales]),
        "fused key_value": (key_value, [q, s]),
    }
    theirs = {
        "bare": (bare, [q, s]),
        "scaled": (scaled, [s, scales[0]]),
        "turned": (partial(turned, rotation=rotation), [s, *scales]),
        "standard": (standard, [q, s, v]),
    }
    found = {name: Contestant(attend, inputs, grad, None) for name, (attend, inputs) in ours.items()}
    for (name, (attend, inputs)), backend in ((entry, each) for entry in theirs.items() for each in SDPA_BACKENDS):
        label = f"sdpa {name} {backend.name.removesuffix('_ATTENTION').lower()}"
        try:
            found[label] = Contestant(attend, inputs, grad, backend)
        except RuntimeError as error:
            print(f"  {label} at {length}: left out ({str(error).splitlines()[0]})")
    return found


def relative_difference(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


def check_equality(found: dict[str, Contestant]) -> dict[str, float]:
    """Largest relative difference of any result between ours and SDPA."""
    differences = {}
    for ours, theirs in MATCHES.items():
        other = next(contestant for name, contestant in found.items() if name.startswith(theirs))
        pairs = zip(found[ours].results, other.results, strict=True)
        differences[ours] = max(relative_difference(a.detach(), b.detach()) for a, b in pairs)
        if not differences[ours] < TOLERANCE:
            raise SystemExit(f"{ours} differs from {theirs} by {differences[ours]:.1e}; no speed is worth printing")
    return differences


def floor_seconds(options: argparse.Namespace, length: int, backward: bool, tensors_read: int) -> dict[str, float]:
    """What bytes and products allow: states are read or written once, a backward pass has 5 products for 2."""
    state_bytes = options.tokens * options.heads * options.head_size * options.dtype.itemsize
    # Forward: read, write the output. Backward: read these, the gradient; write a gradient for each.
    moved = tensors_read + 1 + (2 * tensors_read + 1 if backward else 0)
    flops = 4 * options.tokens * length * options.heads * options.head_size * (3.5 if backward else 1)
    return {"bytes": moved * state_bytes / BYTES_PER_S, "flops": flops / FLOPS_PER_S}


def measure(options: argparse.Namespace, length: int, backward: bool) -> dict[str, Any]:
    found = contestants(options, length, backward)
    differences = check_equality(found)
    times: dict[str, list[float]] = {name: [] for name in found}
    for number in range(options.warmup + options.rounds):
        if DEVICE == "cuda":
            torch.cuda._sleep(HEAD_START_CYCLES)
        readings = {name: contestant.start() for name, contestant in found.items()}
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        if number >= options.warmup:
            for name, seconds in readings.items():
                times[name].append(seconds())
    medians = {name: statistics.median(values) for name, values in times.items()}
    best = {
        kind: min((name for name in medians if name.startswith(f"sdpa {kind}")), key=lambda name: medians[name])
        for kind in KINDS
    }
    return {
        "length": length,
        "pass": "forward+backward" if backward else "forward",
        "differences": differences,
        "median_us": {name: 1e6 * value for name, value in medians.items()},
        "spread_us": {name: [1e6 * min(values), 1e6 * max(values)] for name, values in times.items()},
        "best_sdpa": best,
        "ratio_of_shared_to": {kind: medians[name] / medians["fused shared"] for kind, name in best.items()},
        "ratio_of_rotary_to_turned": medians[best["turned"]] / medians["fused rotary"],
        "ratio_of_key_value_to_bare": medians[best["bare"]] / medians["fused key_value"],
        "floor_us": {
            name: {what: 1e6 * value for what, value in floor_seconds(options, length, backward, tensors).items()}
            for name, tensors in (("shared", 1), ("key_value", 2), ("standard", 3))
        },
    }


def print_row(row: dict[str, Any]) -> None:
    medians, best = row["median_us"], row["best_sdpa"]
    floor = max(row["floor_us"]["shared"].values())
    columns = [f"{row['length']:5d} {row['pass']:16s}"]
    columns += [f"{medians[name]:8.0f}" for name in MATCHES]
    columns += [f"{medians[best[kind]]:8.0f} ({best[kind].split()[-1]:9s})" for kind in best]
    columns += [f"{ratio:6.2f}" for ratio in row["ratio_of_shared_to"].values()]
    columns += [f"{floor:7.0f}"]
    print(" ".join(columns), flush=True)


def tune(options: argparse.Namespace) -> None:
    """Time the kernels of `shared` and `key_value` with other tiles than the table's and print the best."""
    from sharedqkv.kernels import launch
    from sharedqkv.kernels.launch import Tiles

    for length, same in ((length, same) for length in options.lengths for same in (True, False)):
        q, s = (tensor.detach() for tensor in states(options, length, 2))
        scale = torch.ones(s.shape[1], s.shape[3], device=DEVICE) if same else None
        call = launch.Call(
            None if same else q, s, scale, *[None] * 6, s.shape[-1] ** -0.5, False, 0.0
        )  # fmt: skip
        out, lse = launch.forward(call)
        grad = torch.randn_like(out)
        short = launch.short_tile(length)
        forward = [Tiles(*cut) for cut in ((64, 64, 4, 3), (64, 64, 4, 4), (128, 64, 4, 3), (128, 64, 8, 3))]
        if length <= 256:
            forward += [Tiles(64, short, warps, 1) for warps in (4, 8)] + [Tiles(128, short, 8, 1)]
        backward = [Tiles(*cut) for cut in (
            (64, 64, 4, 1), (64, 64, 4, 2), (64, 32, 4, 2), (64, 32, 4, 3), (128, 64, 8, 1), (128, 64, 8, 2),
        )]  # fmt: skip
        backward += [Tiles(*cut, registers=168) for cut in ((64, 64, 4, 1), (64, 32, 4, 2), (64, 32, 4, 3))]
        if length <= 128:
            backward += [Tiles(short, short, 8, stages, True) for stages in (1, 2, 3, 4)]
        trials = {
            "forward": (launch.forward_tiles(call), forward, lambda tiles, call=call: launch.forward(call, tiles)),
            "backward": (
                launch.backward_tiles(call),
                backward,
                lambda tiles, call=call, rest=(grad, out, lse): launch.backward(call, *rest, tiles),
            ),
        }
        for name, (current, candidates, run) in trials.items():
            print(f"{'shared' if same else 'key_value'}, length {length}, {name}; now {current}")
            for microseconds, tiles in sorted(time_tiles(candidates, run), key=lambda entry: entry[0]):
                print(f"  {microseconds:8.0f} us  {tiles}", flush=True)


def time_tiles(candidates: list[Any], run: Callable[[Any], Any]) -> list[tuple[float, Any]]:
    from triton.runtime.errors import OutOfResources
    from triton.testing import do_bench

    timed = []
    for tiles in candidates:
        try:
            if DEVICE == "cuda":
                timed.append((1e3 * do_bench(lambda tiles=tiles: run(tiles), return_mode="median"), tiles))
            else:
                run(tiles)
                timed.append((0.0, tiles))
        except OutOfResources as error:
            print(f"  {tiles}: {error}")
    return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", help="folder for record.json")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 256, 512, 1024, 2048, 4096])
    parser.add_argument("--tokens", type=int, default=65536, help="tokens a batch, at every length")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--head-size", type=int, default=64)
    parser.add_argument("--dtype", type=lambda name: getattr(torch, name), default=torch.bfloat16)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=5, help="rounds cut")
    parser.add_argument("--tune", action="store_true", help="time tiles instead")
    options = parser.parse_args()
    if options.tune:
        tune(options)
        return

    start = time.perf_counter()
    print("medians in us; ratios of SDPA's best to fused shared; floor of shared at 4.2 TB/s and 700 TFLOP/s")
    print("length pass            shared   rotary key_value  sdpa bare           scaled              turned"
          "              standard             bare scaled turned standard  floor")  # fmt: skip
    rows = []
    for length in options.lengths:
        for backward in (False, True):
            rows.append(measure(options, length, backward))
            print_row(rows[-1])
    print(f"{time.perf_counter() - start:.0f} s")
    if options.output:
        record = {
            "benchmark": "attention",
            "date": now(),
            "config": {**vars(options), "dtype": str(options.dtype)},
            "results": rows,
            "environment": environment(),
        }
        output = Path(options.output)
        output.mkdir(parents=True, exist_ok=True)
        (output / "record.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
