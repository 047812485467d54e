"""What happens beside the steps: records, the progress bar, stopping on signals and on the clock."""

import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from tqdm.auto import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from sharedqkv.training.run_folder import RunFolder
from sharedqkv.training.schedule import Clock
from sharedqkv.training.watch import LossWatch

PEAK_FLOPS = {
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A10": 125e12,
    "V100": 125e12,
}
"""Dense bf16 (V100: fp16) tensor-core peaks by the vendor's data sheets, by a word of the device's name."""


def peak_flops() -> float | None:
    if not torch.cuda.is_available():
        return None
    words = re.split(r"[\s-]+", torch.cuda.get_device_name())
    return next((peak for word, peak in PEAK_FLOPS.items() if word in words and "PCIe" not in words), None)


class Records(TrainerCallback):
    """Writes metrics.jsonl and shows a bar with loss, speed, memory and time left."""

    def __init__(self, run: RunFolder, tokens_per_step: int, flops_per_token: float, clock: Clock | None):
        self.run = run
        self.tokens_per_step = tokens_per_step
        self.flops_per_token = flops_per_token
        self.clock = clock
        self.bar: tqdm | None = None
        self._last: tuple[int, float] = (0, 0.0)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._last = (state.global_step, time.perf_counter())
        if state.is_world_process_zero:
            total = state.max_steps if self.clock is None else None
            self.bar = tqdm(total=total, initial=state.global_step, unit="step", dynamic_ncols=True, file=sys.stderr)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, Any], **_: Any
    ) -> None:
        # Everything is in metrics.jsonl; a history in every checkpoint would grow without bound.
        state.log_history.clear()
        if not state.is_world_process_zero:
            return
        record: dict[str, Any] = {"step": state.global_step, "tokens": state.global_step * self.tokens_per_step}
        record |= {name: logs[name] for name in ("loss", "grad_norm", "learning_rate", "eval_loss") if name in logs}
        if "loss" in logs:
            record |= self._speed(state.global_step, args.world_size)
        if len(record) > 2:
            self.run.append_metrics(record)
            self._show(record)

    def _speed(self, step: int, world_size: int) -> dict[str, Any]:
        last_step, last_time = self._last
        now = time.perf_counter()
        self._last = (step, now)
        tokens_per_s = (step - last_step) * self.tokens_per_step / (now - last_time)
        record = {"tokens_per_s": round(tokens_per_s, 1), "seconds": round(now - last_time, 4)}
        if torch.cuda.is_available():
            record["memory_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 3)
            if (peak := peak_flops()) is not None:
                record["mfu"] = round(3 * self.flops_per_token * tokens_per_s / world_size / peak, 4)
        return record

    def _show(self, record: dict[str, Any]) -> None:
        if self.bar is None:
            return
        if "eval_loss" in record:
            self.bar.write(f"step {record['step']}: held-out loss {record['eval_loss']:.4f}", file=sys.stderr)
            return
        shown = {"loss": f"{record['loss']:.4f}", "tokens/s": f"{record['tokens_per_s']:,.0f}"}
        if "mfu" in record:
            shown["MFU"] = f"{record['mfu']:.1%}"
        if "memory_gib" in record:
            shown["memory"] = f"{record['memory_gib']:.1f} GiB"
        if self.clock is not None:
            shown["budget"] = f"{self.clock.progress():.0%}"
        self.bar.set_postfix(shown)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._last = (state.global_step, time.perf_counter())  # evaluating is not training

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._last = (state.global_step, time.perf_counter())

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.bar is not None:
            self.bar.close()


class NonFiniteStop(TrainerCallback):
    def __init__(self, watch: LossWatch):
        self.watch = watch

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.watch.step_ended(state.global_step)


class Stop(TrainerCallback):
    """Ends the run when its time is up, or after a save when a signal asks for it."""

    def __init__(self, clock: Clock | None):
        self.clock = clock
        self.signal: int | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._received) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _received(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            if number == signal.SIGINT:  # Ctrl-C twice: at once, without saving
                raise KeyboardInterrupt
            return  # a scheduler signals every process of a job, and those that started us hand it on besides
        self.signal = number
        print("\nstopping after this step; Ctrl-C once more to stop at once, without saving", file=sys.stderr)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.clock is not None:
            self.clock.tick()
        if self._asked_to_stop(args, state) or (self.clock is not None and self.clock.progress() >= 1):
            control.should_save = True
            control.should_training_stop = True

    def _asked_to_stop(self, args: TrainingArguments, state: TrainerState) -> bool:
        if args.world_size == 1:
            return self.signal is not None
        if state.global_step % args.logging_steps:  # agreeing costs a synchronisation
            return False
        device = args.device if torch.distributed.get_backend() == "nccl" else torch.device("cpu")
        asked = torch.tensor([self.signal or 0], device=device)
        torch.distributed.all_reduce(asked, torch.distributed.ReduceOp.MAX)
        if int(asked):  # one that arrived meanwhile counts at the next agreement
            self.signal = int(asked)
        return bool(int(asked))
