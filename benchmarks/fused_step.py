"""Whole training steps of `standard` and `shared` on SDPA and of `shared` on the fused kernel, models taking turns.

A model as wide as BERT-base with its MLM head, compiled, bf16 autocast, no dropout, random tokens. Few layers compile
fast; the head then weighs more than in BERT-base, so that ratios are not those of twelve layers.

    python benchmarks/fused_step.py --layers 4 --rows 512 --length 128
"""

import argparse
import statistics
import time

import torch

from sharedqkv import SharedQKVConfig, SharedQKVForMaskedLM

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CONTESTANTS = {
    "standard, sdpa": ("standard", "sdpa"),
    "shared, sdpa": ("shared", "sdpa"),
    "shared, fused": ("shared", "fused"),
}


class Contestant:
    def __init__(self, variant: str, backend: str, options: argparse.Namespace):
        torch.manual_seed(0)
        config = SharedQKVConfig.from_size(
            options.size,
            attention_variant=variant,
            num_hidden_layers=options.layers,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        self.model = SharedQKVForMaskedLM(config).to(DEVICE).train()
        self.model.set_attn_implementation(backend)
        self.compiled = torch.compile(self.model) if DEVICE == "cuda" else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=DEVICE == "cuda")
        self.ids = torch.randint(5, config.vocab_size, (options.rows, options.length), device=DEVICE)
        masked = max(1, int(0.15 * options.length))
        shuffled = torch.rand(options.rows, options.length, device=DEVICE).argsort(1)
        self.positions = shuffled[:, :masked].sort(1).values
        self.labels = self.ids.gather(1, self.positions)

    def step(self) -> float:
        with torch.autocast(DEVICE, torch.bfloat16):
            outputs = self.compiled(input_ids=self.ids, masked_positions=self.positions, labels=self.labels)
        outputs.loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return outputs.loss.detach()

    def seconds_a_step(self, steps: int) -> float:
        self.step()
        wait()
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        wait()
        return (time.perf_counter() - began) / steps


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20, help="steps a round")
    options = parser.parse_args()
    contestants = {name: Contestant(*what, options) for name, what in CONTESTANTS.items()}
    for name, contestant in contestants.items():
        print(f"{name}: first loss {float(contestant.step()):.5f}", flush=True)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(options.rounds):
        for name, contestant in contestants.items():
            times[name].append(contestant.seconds_a_step(options.steps))
    for name, contestant in contestants.items():
        median = statistics.median(times[name][1:] or times[name])  # the first round warms up
        speed = options.rows * options.length / median / 1e6
        print(f"{name}: {1e3 * median:.2f} ms, {speed:.3f} M tokens/s")
        if DEVICE == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            contestant.step()
            print(f"{name}: {(torch.cuda.max_memory_allocated() - before) / 2**30:.2f} GiB of activations")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
