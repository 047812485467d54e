"""One fine-tuned model: an encoder from its checkpoint, a new head, training, and its outputs."""

import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_pt_utils import LengthGroupedSampler

from sharedqkv.models import SharedQKVModel
from sharedqkv.tasks.graphs import Batch, GraphedPass
from sharedqkv.tasks.outputs import InputTable, float32_products, padded_length, table_outputs
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.tasks.task import Features, Task


def build_model(task: Task, folder: Path, recipe: FinetuneRecipe, seed: int) -> Any:
    """The encoder of a checkpoint under a head that is new for each seed, whatever head the checkpoint has."""
    set_seed(seed)
    dropout = {} if recipe.dropout is None else dict.fromkeys(_DROPOUTS, recipe.dropout)
    encoder = SharedQKVModel.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=recipe.attn_implementation, **dropout
    )
    return task.new_model(encoder)


_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")


class Collator:
    """Pads to the longest row of the batch."""

    def __init__(self, pad_token_id: int, max_length: int):
        self.pad_token_id = pad_token_id
        self.max_length = max_length

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        length = padded_length(max(len(row["input_ids"]) for row in rows), self.max_length)
        batch = {
            "input_ids": _padded([row["input_ids"] for row in rows], length, self.pad_token_id),
            "token_type_ids": _padded([row["token_type_ids"] for row in rows], length, 0),
            "attention_mask": _padded([[1] * len(row["input_ids"]) for row in rows], length, 0),
        }
        targets = rows[0].keys() - batch.keys()
        return {**batch, **{name: torch.tensor([row[name] for row in rows]) for name in sorted(targets)}}


def _padded(rows: list[list[int]], length: int, filler: int) -> Tensor:
    return torch.tensor([row + [filler] * (length - len(row)) for row in rows])


def length_grouped(rows: Sequence[dict[str, Any]], batch_size: int, seed: int) -> LengthGroupedSampler:
    """Rows of similar length share a batch. The order hangs on the seed alone, so it is the same for all models."""
    lengths = [len(row["input_ids"]) for row in rows]
    return LengthGroupedSampler(batch_size, lengths=lengths, generator=torch.Generator().manual_seed(seed))


def training_steps(features: Features, recipe: FinetuneRecipe) -> int:
    return math.ceil(recipe.epochs * math.ceil(len(features.inputs) / recipe.batch_size))


class FinetuneTrainer(Trainer):
    graphed_pass: GraphedPass | None = None
    """Instead of passes that Python asks for kernel by kernel."""

    def _get_train_sampler(self, train_dataset: Any = None) -> LengthGroupedSampler:
        rows = train_dataset if train_dataset is not None else self.train_dataset
        return length_grouped(rows, self.args.train_batch_size, self.args.seed)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Matrices only: biases, norms and the diagonals of the shared variants are not decayed."""
        return [name for name, parameter in model.named_parameters() if parameter.dim() > 1]

    def training_step(self, model: nn.Module, inputs: Batch, num_items_in_batch: Tensor | None = None) -> Tensor:
        plain_step = super().training_step
        if self.graphed_pass is None:
            return plain_step(model, inputs, num_items_in_batch)
        # The number of labels, which the loss is divided by, lies on the GPU too; SQuAD has none.
        items = {} if num_items_in_batch is None else {_ITEMS: num_items_in_batch}

        def training_pass(batch: Batch) -> Tensor:
            own_inputs = {name: tensor for name, tensor in batch.items() if name != _ITEMS}
            return plain_step(model, own_inputs, batch.get(_ITEMS))

        return self.graphed_pass(training_pass, {**self._prepare_inputs(inputs), **items})


_ITEMS = "num_items_in_batch"


def train(
    model: Any, features: Features, recipe: FinetuneRecipe, seed: int, pad_token_id: int, title: str
) -> dict[str, Any]:
    """Train to the last step, without looking at other data. Returns figures about the training."""
    steps = training_steps(features, recipe)
    on_gpu = torch.cuda.is_available()
    set_seed(seed)
    with tempfile.TemporaryDirectory() as unused, deterministic(), float32_products(recipe):
        args = TrainingArguments(
            output_dir=unused,
            max_steps=steps,
            per_device_train_batch_size=recipe.batch_size,
            optim="adamw_torch_fused" if on_gpu else "adamw_torch",
            learning_rate=recipe.learning_rate,
            lr_scheduler_type="linear",
            warmup_steps=int(recipe.warmup * steps),
            adam_beta1=recipe.betas[0],
            adam_beta2=recipe.betas[1],
            adam_epsilon=recipe.eps,
            weight_decay=recipe.weight_decay,
            max_grad_norm=recipe.max_grad_norm,
            bf16=recipe.bf16,
            torch_compile=recipe.compile,
            seed=seed,
            dataloader_pin_memory=on_gpu,
            remove_unused_columns=False,
            logging_strategy="no",
            logging_nan_inf_filter=False,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=not on_gpu,
        )
        trainer = FinetuneTrainer(
            model,
            args,
            data_collator=Collator(pad_token_id, recipe.max_length),
            train_dataset=features.inputs,
            callbacks=[_Bar(title)],
        )
        trainer.remove_callback(PrinterCallback)
        if recipe.cuda_graphs and on_gpu:
            trainer.graphed_pass = GraphedPass(model)
        outcome = trainer.train()
        trainer.graphed_pass = None  # a trainer outlives this in cycles, and graphs hold the memory of their passes
    check_loss(outcome.training_loss)
    return {
        "steps": steps,
        "train_loss": outcome.training_loss,
        "train_seconds": round(outcome.metrics["train_runtime"], 2),
        "inputs_per_second": outcome.metrics["train_samples_per_second"],
    }


def check_loss(loss: float) -> None:
    if not math.isfinite(loss):
        raise ValueError(f"the loss became {loss}: lower learning_rate or lengthen warmup")


def outputs_of(model: Any, features: Features, recipe: FinetuneRecipe, pad_token_id: int) -> list[np.ndarray]:
    """The model's output for each of the inputs: logits of the classes, or (2, length) logits of start and end."""
    return table_outputs(model, InputTable.of(features.inputs, recipe, pad_token_id), recipe).of_inputs()


@contextmanager
def deterministic() -> Iterator[None]:
    """Same seed, same machine, same weights: on GPUs too, where some kernels add in any order by default."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    options: Any = torch.utils.deterministic
    was_on, filled = torch.are_deterministic_algorithms_enabled(), options.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    options.fill_uninitialized_memory = False  # it costs time and decides nothing here
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_on)
        options.fill_uninitialized_memory = filled


class _Bar(TrainerCallback):
    def __init__(self, title: str):
        self.title = title
        self.bar: tqdm | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.bar = tqdm(total=state.max_steps, desc=self.title, unit="step", dynamic_ncols=True, file=sys.stderr)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.bar is not None:
            self.bar.update()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.bar is not None:
            self.bar.close()
