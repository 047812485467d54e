"""Training passes as CUDA graphs: a GPU is done with a small model's pass long before Python has asked for it all."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

Batch = dict[str, Tensor]
TrainingPass = Callable[[Batch], Tensor]
"""Forward and backward on a batch: leaves gradients and returns the loss. It must not wait for the GPU, and must enter
autocast itself: what autocast keeps of cast weights is dropped where it is left, and may not outlive a pass."""

_WARM_UPS = 3
"""As many as torch's documentation takes: kernels are chosen, loaded and compiled in them."""


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    batch: Batch
    """What the graph reads."""
    loss: Tensor
    """What it writes, beside the gradients."""


class GraphedPass:
    """A training pass that is captured once for every shape of batch, and then replayed without Python.

    The graphs share their memory and write the same gradients: use what a pass leaves before the next one. Dropout
    differs from replay to replay, since torch gives each graph the state of the GPU's default generator anew.
    """

    def __init__(self, model: nn.Module):
        self.model = model
        self.pool = torch.cuda.graph_pool_handle()
        self.captured: dict[tuple[torch.Size, ...], _Captured] = {}
        self.gradients: dict[nn.Parameter, Tensor] = {}
        """Of the parameters that the loss hangs on; optimizers pass over the others."""

    def __call__(self, training_pass: TrainingPass, batch: Batch) -> Tensor:
        shapes = tuple(tensor.shape for tensor in batch.values())
        if shapes not in self.captured:
            self.captured[shapes] = self._capture(training_pass, batch)
        captured = self.captured[shapes]
        for name, tensor in batch.items():
            captured.batch[name].copy_(tensor)
        captured.graph.replay()
        for parameter, gradient in self.gradients.items():
            parameter.grad = gradient
        return captured.loss.clone()

    def _capture(self, training_pass: TrainingPass, batch: Batch) -> _Captured:
        """Changes neither weights nor the state of any generator."""
        own_batch = {name: tensor.clone() for name, tensor in batch.items()}
        self.model.zero_grad()
        with torch.random.fork_rng():
            self._warm_up(training_pass, own_batch)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, stream=_side_stream()):
            loss = training_pass(own_batch)
            # Gradients of its own would cost each graph as much memory as the model has weights.
            made = [parameter.grad for parameter in self.gradients if parameter.grad is not None]
            torch._foreach_copy_(list(self.gradients.values()), made)
        self.model.zero_grad()
        return _Captured(graph, own_batch, loss)

    def _warm_up(self, training_pass: TrainingPass, batch: Batch) -> None:
        # Transformers leaves out a mask that hides nothing, but cannot look at it while capturing: warm up with one.
        masked = {**batch, "attention_mask": batch["attention_mask"].clone()}
        masked["attention_mask"][..., -1] = 0
        stream = _side_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                training_pass(masked)
                trained = [parameter for parameter in self.model.parameters() if parameter.grad is not None]
                self.model.zero_grad()
        torch.cuda.current_stream().wait_stream(stream)
        self.gradients = self.gradients or {parameter: torch.empty_like(parameter) for parameter in trained}


@cache
def _side_stream() -> torch.cuda.Stream:
    """One for all captures: cuBLAS keeps a work space for every stream it has seen."""
    return torch.cuda.Stream()
