"""Several models that learn one task, trained as one: a small model alone leaves most of a GPU idle.

Each parameter gets a first dimension K, the models, and `torch.func.vmap` runs the model's own code over it. Models do
not see each other: each has its data order, its head and its clipping as if alone, and its losses but for rounding.
Dropout is drawn for all at once, so that with it what a seed gives hangs on which seeds it was trained with. They share
the longest padding, which matters to SQuAD's loss alone: it goes over the padding too. Attention weights are laid out
whole, which is fine for short rows and much memory for long ones.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from tqdm.auto import tqdm
from transformers import get_linear_schedule_with_warmup, set_seed

from sharedqkv.tasks.graphs import Batch, GraphedPass
from sharedqkv.tasks.outputs import InputTable, float32_products, padded_length
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.tasks.task import Features
from sharedqkv.tasks.training import deterministic, length_grouped, training_steps


class Stack(nn.Module):
    """Models of one architecture as one module, whose parameters are theirs on top of each other.

    It may be on another device than they are: with their weights there too, each would be there twice.
    """

    def __init__(self, models: Sequence[Any], device: torch.device | None = None):
        super().__init__()
        parameters, buffers = stack_module_state(list(models))
        self.names = list(parameters)
        self.parameters_K = nn.ParameterList(
            nn.Parameter(one.to(device=device), one.requires_grad) for one in parameters.values()
        )
        self.own_buffers = {name: one.to(device=device) for name, one in buffers.items()}
        self.code = [models[0].train()]  # in a list, so that its own parameters are not among these
        self.padding = {
            self.names.index(f"{name}.weight"): module.padding_idx
            for name, module in models[0].named_modules()
            if isinstance(module, nn.Embedding) and module.padding_idx is not None
        }

    def forward(self, batch_K: Batch) -> Tensor:
        """Every model's loss on its own batch."""
        parameters = dict(zip(self.names, self.parameters_K, strict=True))
        # Inside of vmap nothing seems to need a gradient, so that other kernels keep nothing for the way back.
        with sdpa_kernel(SDPBackend.MATH):
            return vmap(self._loss, randomness="different")(parameters, self.own_buffers, batch_K)

    def _loss(self, parameters: dict[str, Tensor], buffers: dict[str, Tensor], batch: Batch) -> Tensor:
        # As the backends take it: Transformers would look into a mask of rows to see whether it hides anything.
        inputs = {**batch, "attention_mask": batch["attention_mask"][:, None, None, :]}
        return functional_call(self.code[0], (parameters, buffers), kwargs=inputs).loss

    def backward(self, losses_K: Tensor, max_norm: float) -> None:
        """Gradients of each model, clipped by the norm of its own; 0 does not clip."""
        losses_K.sum().backward()
        for number, row in self.padding.items():
            gradient = self.parameters_K[number].grad
            if gradient is not None:
                gradient[:, row] = 0  # in a table of all models' words torch knows the first one's padding only
        if max_norm:
            self._clip(max_norm)

    def _clip(self, max_norm: float) -> None:
        gradients = [parameter.grad for parameter in self.parameters_K if parameter.grad is not None]
        for own in zip(*(gradient.unbind() for gradient in gradients), strict=True):  # a model's, in a few kernels
            scale = max_norm / (torch.nn.utils.get_total_norm(own) + 1e-6)
            torch._foreach_mul_(own, scale.clamp(max=1))

    @torch.no_grad()
    def hand_back(self, models: Sequence[Any]) -> None:
        """The weights of now to the models it was made of."""
        for name, parameter_K in zip(self.names, self.parameters_K, strict=True):
            for model, trained in zip(models, parameter_K, strict=True):
                model.get_parameter(name).copy_(trained)


class _Rows:
    """The training sets of all models on the device, from which batches are only picked."""

    def __init__(self, features: Sequence[Features], recipe: FinetuneRecipe, pad_token_id: int, device: torch.device):
        starts: dict[int, int] = {}
        rows: list[dict[str, Any]] = []
        for one in features:  # seeds share their set, unless each has wrong labels of its own
            if id(one) not in starts:
                starts[id(one)] = len(rows)
                rows += one.inputs
        self.start_K = torch.tensor([starts[id(one)] for one in features])
        table = InputTable.of(rows, recipe, pad_token_id)
        self.lengths_R = torch.from_numpy(table.lengths_R)
        self.max_length = recipe.max_length
        targets = rows[0].keys() - {"input_ids", "token_type_ids"}
        self.columns = {
            "input_ids": torch.from_numpy(table.ids_RL).long().to(device),
            "token_type_ids": torch.from_numpy(table.types_RL).long().to(device),
            "attention_mask": (torch.arange(table.ids_RL.shape[1]) < self.lengths_R[:, None]).to(device),
            **{name: torch.tensor([row[name] for row in rows]).to(device) for name in sorted(targets)},
        }

    def batch(self, picked_KB: Tensor) -> Batch:
        rows_KB = picked_KB + self.start_K[:, None]
        length = padded_length(int(self.lengths_R[rows_KB].max()), self.max_length)
        on_device_KB = rows_KB.to(self.columns["input_ids"].device)
        return {
            name: (column[:, :length] if column.dim() > 1 else column)[on_device_KB]
            for name, column in self.columns.items()
        }


def _orders(features: Sequence[Features], recipe: FinetuneRecipe, seeds: Sequence[int]) -> Iterator[Tensor]:
    """For each step the rows of every model's batch."""
    samplers = [length_grouped(one.inputs, recipe.batch_size, seed) for one, seed in zip(features, seeds, strict=True)]
    while True:
        yield from torch.tensor([list(sampler) for sampler in samplers]).split(recipe.batch_size, dim=1)


def train_together(
    models: Sequence[Any],
    features: Sequence[Features],
    recipe: FinetuneRecipe,
    seeds: Sequence[int],
    pad_token_id: int,
    title: str,
) -> list[dict[str, Any]]:
    """As `train`, for one model with each seed, but that the models stay on the device they are on.

    Returns figures about each training; a loss may not be finite.
    """
    steps = training_steps(features[0], recipe)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    set_seed(seeds[0])
    stack = Stack(models, device)
    rows = _Rows(features, recipe, pad_token_id, device)
    optimizer = _optimizer(stack, recipe, fused=device.type == "cuda")
    schedule = get_linear_schedule_with_warmup(optimizer, int(recipe.warmup * steps), steps)

    def training_pass(batch: Batch) -> Tensor:
        stack.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.bf16):
            losses_K = stack(batch)
        stack.backward(losses_K, recipe.max_grad_norm)
        return losses_K.detach()

    graphed = GraphedPass(stack) if recipe.cuda_graphs and device.type == "cuda" else None
    summed_K = torch.zeros(len(models), device=device)
    began = time.monotonic()
    bar = tqdm(total=steps, desc=title, unit="step", dynamic_ncols=True, file=sys.stderr)
    with deterministic(), float32_products(recipe), bar:
        for picked_KB in islice(_orders(features, recipe, seeds), steps):
            batch = rows.batch(picked_KB)
            summed_K += training_pass(batch) if graphed is None else graphed(training_pass, batch)
            optimizer.step()
            schedule.step()
            bar.update()
    losses = (summed_K / steps).tolist()  # waits for the device
    seconds = time.monotonic() - began
    stack.hand_back(models)
    figures = {
        "steps": steps,
        "train_seconds": round(seconds, 2),
        "inputs_per_second": round(len(models) * steps * recipe.batch_size / seconds, 3),
        "together_with_seeds": list(seeds),
    }
    return [{**figures, "train_loss": loss} for loss in losses]


def _optimizer(stack: Stack, recipe: FinetuneRecipe, fused: bool) -> torch.optim.Optimizer:
    """AdamW; matrices are decayed, as when each is trained alone."""
    trained = [parameter for parameter in stack.parameters_K if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() > 2], "weight_decay": recipe.weight_decay},
        {"params": [p for p in trained if p.dim() <= 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=recipe.betas, eps=recipe.eps, fused=fused)
