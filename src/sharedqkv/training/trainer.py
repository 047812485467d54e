"""Hugging Face's Trainer, thinly subclassed: exact resume, committed checkpoints, honest evaluation."""

import gc
import json
import math
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from sharedqkv.data.dataset import MaskedBatches, collate
from sharedqkv.models.losses import IGNORED
from sharedqkv.training import checkpoints
from sharedqkv.training.optimizers import StableAdamW
from sharedqkv.training.recipe import PretrainRecipe
from sharedqkv.training.schedule import Clock, make_schedule
from sharedqkv.training.watch import LossWatch, NonFiniteLossError

PROGRESS = "progress.json"
SIGTERM_OUTLASTED_S = 30


class PretrainTrainer(Trainer):
    """`train_dataset` is the whole run as one sequence, so there is one epoch and nothing to shuffle."""

    lr_scheduler: Any
    control: Any

    def __init__(
        self,
        recipe: PretrainRecipe,
        model: nn.Module,
        args: TrainingArguments,
        train: MaskedBatches,
        validation: MaskedBatches,
        watch: LossWatch,
        clock: Clock | None,
        **kwargs: Any,
    ):
        if recipe.optimizer == "stable_adamw":
            settings = {"lr": recipe.learning_rate, "betas": recipe.betas, "eps": recipe.eps}
            kwargs["optimizer_cls_and_kwargs"] = (StableAdamW, settings)
        if args.device.type == "cpu":
            # Of several processes it is cpu:0, a place that torch does not know; Transformers 5.17 would load to it.
            vars(args)["_setup_devices"] = torch.device("cpu")
        super().__init__(model, args, data_collator=collate, train_dataset=train, eval_dataset=validation, **kwargs)
        self.recipe = recipe
        self.watch = watch
        self.clock = clock
        self.last_evaluation: tuple[int, float] | None = None

    def _get_train_sampler(self, train_dataset: Any = None) -> SequentialSampler:
        return SequentialSampler(train_dataset if train_dataset is not None else self.train_dataset)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """What has two dimensions or more: no biases, no norms, and no diagonals but the wide ones of `overlapping`, as
        when it was measured."""
        return [name for name, parameter in model.named_parameters() if parameter.dim() > 1]

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        if self.lr_scheduler is None:
            recipe = self.recipe
            self.lr_scheduler = make_schedule(
                optimizer or self.optimizer,
                num_training_steps,
                recipe.schedule,
                recipe.warmup,
                recipe.decay,
                self.clock,
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def get_train_dataloader(self) -> Any:
        loader = super().get_train_dataloader()
        if loader.num_workers:
            inner = getattr(loader, "base_dataloader", loader)  # Accelerate wraps it
            inner.worker_init_fn = partial(_outlast_sigterm, inner.worker_init_fn)
        return loader

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        loss = super().training_step(model, inputs, num_items_in_batch)
        self.watch.saw(loss, inputs)
        return loss

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        return super().compute_loss(model, {**inputs, "loss_only": True}, *args, **kwargs)

    # Checkpoints

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        self.watch.check_now(self.state.global_step)
        self._check_weights()
        folder = Path(self.args.output_dir)
        checkpoint = folder / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        if self.args.should_save and checkpoint.exists():
            shutil.rmtree(checkpoint)  # what an interrupted save left
        self.accelerator.wait_for_everyone()
        try:
            super()._save_checkpoint(model, trial)
            if self.args.should_save:
                (checkpoint / PROGRESS).write_text(json.dumps(self._progress()))
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                checkpoints.commit(checkpoint)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
            shutil.rmtree(checkpoint, ignore_errors=True)
            good, _ = checkpoints.newest_complete(folder)
            kept = f"{good} is complete" if good else "there is no earlier one"
            raise OSError(
                f"{checkpoint} could not be written ({error}); {kept}. Make room and continue with --resume auto"
            ) from error
        if self.args.should_save:
            checkpoints.rotate(folder, self.recipe.keep_checkpoints)

    def _check_weights(self) -> None:
        """A finite loss may still have had a gradient that was not; such weights must not replace good ones."""
        bad = [name for name, parameter in self.model.named_parameters() if not parameter.isfinite().all()]
        if bad:
            raise NonFiniteLossError(
                f"weights are not finite at step {self.state.global_step} ({bad[0]} and {len(bad) - 1} others): they "
                "are not saved, and the checkpoints before are good. Lower learning_rate or lengthen warmup"
            )

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        super()._save(output_dir, state_dict)
        # A pickle nobody reads; run.json holds the recipe.
        (Path(output_dir or self.args.output_dir) / "training_args.bin").unlink(missing_ok=True)

    def _progress(self) -> dict[str, Any]:
        """What the Trainer would forget: losses summed since the last record, and time spent."""
        return {
            "pending_loss": float(self._tr_loss),
            "last_logged": self._globalstep_last_logged,
            "elapsed_s": None if self.clock is None else self.clock.elapsed_s,
            "last_evaluation": self.last_evaluation,
        }

    def resume(self, checkpoint: Path | None) -> Any:
        if checkpoint is None:
            return self.train()
        progress = read_progress(checkpoint)
        self.last_evaluation = tuple(progress["last_evaluation"]) if progress["last_evaluation"] else None
        self.add_callback(_RestorePendingLoss(self, progress))
        return self.train(resume_from_checkpoint=str(checkpoint))

    def leave_group(self) -> None:
        """A process that ends with its group open may abort, and a launcher then ends the others before they are done.

        The model that wraps ours goes first. It would be the last to hold the group, and torch destroys that with the
        GIL held, for which threads of gloo may wait: https://github.com/pytorch/pytorch/issues/56297.
        """
        self.model_wrapped = self.model
        self.accelerator.free_memory()  # other versions keep the wrapped model there
        gc.collect()  # where it is part of a cycle
        self.accelerator.end_training()

    # Evaluation

    @torch.no_grad()
    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The loss per masked token over the whole held-out set, whatever the batches."""
        model = self.model_wrapped
        was_training = model.training
        model.eval()
        sums = torch.zeros(2, dtype=torch.float64)
        for real_rows, inputs in self._held_out_batches():
            inputs = self._prepare_inputs(inputs)
            inputs["labels"][real_rows:] = IGNORED
            count = (inputs["labels"] != IGNORED).sum()
            inputs.pop("next_sentence_label", None)
            with self.compute_loss_context_manager():
                loss = model(**inputs, num_items_in_batch=torch.ones_like(count), loss_only=True).loss
            sums += torch.stack((loss.double(), count.double())).cpu()
        model.train(was_training)
        if self.args.world_size > 1:
            sums = self.accelerator.reduce(sums.to(self.args.device), reduction="sum")
        loss, count = sums.tolist()
        metrics = {"eval_loss": loss / count}
        self.last_evaluation = (self.state.global_step, metrics["eval_loss"])
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _held_out_batches(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """This process's share of the held-out batches, with the number of rows in each that count.

        All are of one size, the last ones filled up with rows that do not count, so that nothing is compiled twice.
        """
        total, size = len(self.eval_dataset), self.recipe.rows_per_device
        stride = size * self.args.world_size
        # As many batches in every process, or sharded models would wait for each other for ever.
        starts = range(self.args.process_index * size, math.ceil(total / stride) * stride, stride)
        batches = [[row % total for row in range(start, start + size)] for start in starts]
        loader = DataLoader(self.eval_dataset, batch_sampler=batches, collate_fn=collate)
        for start, inputs in zip(starts, loader, strict=True):
            yield max(0, min(size, total - start)), inputs


def _outlast_sigterm(then: Callable[[int], None], worker: int) -> None:
    """In a process of the data loader. A scheduler signals it as well, and without it there would be no last step."""

    def soon(number: int, frame: Any) -> None:
        end = threading.Timer(SIGTERM_OUTLASTED_S, os._exit, (0,))
        end.daemon = True
        end.start()

    signal.signal(signal.SIGTERM, soon)
    then(worker)


def read_progress(checkpoint: Path) -> dict[str, Any]:
    return json.loads((checkpoint / PROGRESS).read_text())


class _RestorePendingLoss(TrainerCallback):
    """The first moment after the Trainer has reset what it sums the loss in."""

    def __init__(self, trainer: PretrainTrainer, progress: dict[str, Any]):
        self.trainer = trainer
        self.progress = progress

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.trainer._tr_loss += self.progress["pending_loss"]
        self.trainer._globalstep_last_logged = self.progress["last_logged"]
