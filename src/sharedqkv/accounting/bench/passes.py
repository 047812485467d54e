"""What is timed: a training step as `sharedqkv pretrain` does it, and a forward pass of the encoder."""

import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sharedqkv.accounting.flops import MASKED_SHARE
from sharedqkv.models.losses import IGNORED

LOSS, HIDDEN_STATES = "loss", "hidden states"
Results = dict[str, Tensor]
"""The hidden states, and of a training step the loss and gradients by parameter."""
_ROWS_COMPARED = 8


@dataclass(frozen=True)
class Batch:
    """Rows of random tokens with a fixed number of masked positions."""

    ids_BL: Tensor
    positions_BM: Tensor
    labels_BM: Tensor

    @classmethod
    def random(cls, vocab_size: int, rows: int, length: int, device: torch.device, seed: int = 0) -> "Batch":
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(5, vocab_size, (rows, length), generator=generator)
        shuffled = torch.rand(rows, length, generator=generator).argsort(1)
        positions = shuffled[:, : num_masked(length)].sort(1).values
        return cls(ids.to(device), positions.to(device), ids.gather(1, positions).to(device))

    def labels_of_all_tokens(self) -> Tensor:
        return torch.full_like(self.ids_BL, IGNORED).scatter(1, self.positions_BM, self.labels_BM)


def num_masked(length: int) -> int:
    """As in pre-training, where a row has two special tokens."""
    return max(1, round(MASKED_SHARE * (length - 2)))


class TrainStep:
    def __init__(self, model: Any, batch: Batch, bf16: bool, compiled: bool = False, all_labels: bool = False):
        self.model = model.train()
        self.device = batch.ids_BL.device
        self.bf16 = bf16
        self.call = _compile(model) if compiled else model
        self.inputs: dict[str, Any] = {"input_ids": batch.ids_BL}
        if all_labels:
            self.inputs["labels"] = batch.labels_of_all_tokens()
        else:
            count = torch.tensor(batch.labels_BM.numel(), device=self.device)
            self.inputs |= {
                "masked_positions": batch.positions_BM,
                "labels": batch.labels_BM,
                "num_items_in_batch": count,
                "loss_only": True,
            }
        matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
        vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}],
            lr=1e-4,
            betas=(0.9, 0.98),
            eps=1e-6,
            fused=self.device.type == "cuda",
        )

    def __call__(self) -> None:
        self._loss(self.call).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def results(self, without_dropout: bool) -> Results:
        """The loss and every gradient, of what is timed; where it drops out, of the plain model in evaluation mode."""
        self.model.train(not without_dropout)
        loss = self._loss(self.model if without_dropout else self.call)
        loss.backward()
        gradients = {
            name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for name, parameter in self.model.named_parameters()
        }
        self.model.zero_grad()
        hidden_states = self._hidden_states_of_some()
        self.model.train()
        return {LOSS: loss.detach(), HIDDEN_STATES: hidden_states, **gradients}

    @torch.no_grad()
    def _hidden_states_of_some(self) -> Tensor:
        """Of a few rows, not compiled: at random weights a loss is about the same whatever the layers do."""
        ids_BL = self.inputs["input_ids"][:_ROWS_COMPARED]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            return self.model.eval().base_model(input_ids=ids_BL).last_hidden_state

    def held_bytes(self) -> int:
        state = [value for values in self.optimizer.state.values() for value in values.values()]
        return _bytes_of([*self.model.parameters(), *self.model.buffers(), *state])

    def _loss(self, call: Callable[..., Any]) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            return call(**self.inputs).loss


class ForwardPass:
    """The encoder without its MLM head, weights in bf16 when asked for, as a user would serve it."""

    def __init__(self, model: Any, batch: Batch, bf16: bool, compiled: bool = False):
        self.model = copy.deepcopy(model.base_model).eval().to(torch.bfloat16 if bf16 else torch.float32)
        self.call = _compile(self.model) if compiled else self.model
        self.ids_BL = batch.ids_BL

    @torch.inference_mode()
    def __call__(self) -> None:
        self.call(input_ids=self.ids_BL)

    @torch.inference_mode()
    def results(self, without_dropout: bool = True) -> Results:
        return {HIDDEN_STATES: self.call(input_ids=self.ids_BL).last_hidden_state.clone()}

    def held_bytes(self) -> int:
        return _bytes_of([*self.model.parameters(), *self.model.buffers()])


Pass = TrainStep | ForwardPass


def _compile(model: Any) -> Any:
    # Models of one class share dynamo's cache: past its limit (8) the next one would silently run uncompiled.
    torch._dynamo.config.recompile_limit = 256
    return torch.compile(model, dynamic=False)


def _bytes_of(tensors: list[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(run: Callable[[], Any], steps: int = 1) -> float:
    """A step's, on the wall clock."""
    synchronise()
    began = time.perf_counter()
    for _ in range(steps):
        run()
    synchronise()
    return (time.perf_counter() - began) / steps


def memory_of(run: Pass) -> dict[str, int] | None:
    """Bytes of a step on a GPU: what comes on top of what lies there, and that with the model's own."""
    if not torch.cuda.is_available():
        return None
    synchronise()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    synchronise()
    step = torch.cuda.max_memory_allocated() - before
    return {"step": step, "peak": run.held_bytes() + step}


def watts_of(run: Pass, step_s: float, seconds: float = 3.0) -> float | None:
    """Median power while it runs; the first second is cut, since the driver gives means over up to a second."""
    try:
        torch.cuda.power_draw()
    except Exception:  # whatever NVML lacks: the package, the driver, the permission
        return None
    samples = []
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        seconds_of(run, steps=max(1, round(0.1 / step_s)))
        if elapsed > 1:
            samples.append(torch.cuda.power_draw() / 1000)
    return statistics.median(samples) if samples else None
