"""The learning rate as a function of progress, so that budgets in steps and in minutes share one schedule."""

import time

import torch
from torch.optim.lr_scheduler import LambdaLR


def rate_factor(progress: float, schedule: str, warmup: float, decay: float) -> float:
    """Share of the peak rate when `progress` (0 … 1) of the budget is used."""
    if progress < warmup:
        return progress / warmup
    if schedule == "linear":
        return max(0.0, (1 - progress) / (1 - warmup))
    if schedule == "warmup_stable_decay" and progress > 1 - decay:
        return max(0.0, (1 - progress) / decay)
    return 1.0


class Clock:
    """Seconds of training, those of earlier sittings included; one clock for all processes.

    `tick` asks the first process for the time, so all must call it together; in between the time stands still, and
    rates and decisions are the same everywhere.
    """

    def __init__(self, budget_s: float, before_s: float = 0.0):
        self.budget_s = budget_s
        self.before_s = before_s
        self.elapsed_s = before_s
        self._start = time.monotonic()

    def tick(self) -> None:
        seconds = self.before_s + time.monotonic() - self._start
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
            shared = torch.tensor([seconds], dtype=torch.float64, device=device)
            torch.distributed.broadcast(shared, src=0)
            seconds = float(shared)
        self.elapsed_s = seconds

    def progress(self) -> float:
        return min(1.0, self.elapsed_s / self.budget_s)


def make_schedule(
    optimizer: torch.optim.Optimizer, max_steps: int, schedule: str, warmup: float, decay: float, clock: Clock | None
) -> LambdaLR:
    def factor(step: int) -> float:
        # Step n trains with what is left after it begins; a rate of exactly 0 would waste the first step.
        progress = (step + 1) / (max_steps + 1) if clock is None else clock.progress()
        return rate_factor(progress, schedule, warmup, decay)

    return LambdaLR(optimizer, factor)
