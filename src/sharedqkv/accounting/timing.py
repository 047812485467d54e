"""Time and memory of a training step and of a forward pass, measured: models take turns, medians are for the reader."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from sharedqkv.models import SharedQKVConfig, SharedQKVForMaskedLM

_WARM_UP = 2


def time_models(
    configs: Mapping[str, SharedQKVConfig], rows: int, length: int, repeats: int, bf16: bool = False, seed: int = 0
) -> dict[str, Any]:
    """Seconds of every repeat. In each repeat every model has its turn, so that a slow moment hits all alike."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    timers = {}
    for name, config in configs.items():
        torch.manual_seed(seed)
        timers[name] = _Timer(SharedQKVForMaskedLM(config).to(device), rows, length, bf16)
    measured: dict[str, dict[str, Any]] = {
        name: {"train_step_s": [], "forward_s": [], "peak_memory_bytes": None} for name in configs
    }
    for repeat in range(_WARM_UP + repeats):
        for name, timer in timers.items():
            step, forward = timer.time(timer.train_step), timer.time(timer.forward)
            if repeat >= _WARM_UP:
                measured[name]["train_step_s"].append(step)
                measured[name]["forward_s"].append(forward)
    if device.type == "cuda":
        for name, timer in timers.items():
            measured[name]["peak_memory_bytes"] = timer.peak_memory()
    where = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    return {
        "device": where,
        "threads": torch.get_num_threads(),
        "rows": rows,
        "length": length,
        "bf16": bf16,
        "entrants": measured,
    }


class _Timer:
    def __init__(self, model: Any, rows: int, length: int, bf16: bool):
        self.model = model
        self.device = next(model.parameters()).device
        self.bf16 = bf16
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=self.device.type == "cuda")
        self.ids = torch.randint(5, model.config.vocab_size, (rows, length), device=self.device)
        masked = torch.rand(rows, length, device=self.device) < 0.15
        self.labels = torch.where(masked, self.ids, -100)

    def train_step(self) -> None:
        self.model.train()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss = self.model(input_ids=self.ids, labels=self.labels).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.no_grad()
    def forward(self) -> None:
        self.model.eval()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            self.model.bert(input_ids=self.ids)

    def peak_memory(self) -> int:
        """Of a training step with this model alone: the others are on the device, too."""
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        self.train_step()
        own = sum(
            3 * parameter.numel() * parameter.element_size() for parameter in self.model.parameters()
        )  # Adam's, too
        return torch.cuda.max_memory_allocated() - held + own

    def time(self, function: Callable[[], None]) -> float:
        self._wait()
        began = time.perf_counter()
        function()
        self._wait()
        return time.perf_counter() - began

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
