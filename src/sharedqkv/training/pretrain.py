"""One pre-training run, from a recipe to a run folder."""

import importlib.util
import math
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PrinterCallback, TrainingArguments, set_seed
from transformers.utils import logging as hf_logging

from sharedqkv.accounting import forward_flops_per_token
from sharedqkv.data.dataset import MaskedBatches
from sharedqkv.data.files import sha256_of
from sharedqkv.data.manifest import MANIFEST
from sharedqkv.data.masking import Masking, Vocabulary
from sharedqkv.data.shards import ShardedRows
from sharedqkv.models import SharedQKVConfig, SharedQKVForMaskedLM, SharedQKVForPreTraining
from sharedqkv.training import checkpoints, plots
from sharedqkv.training.callbacks import NonFiniteStop, Records, Stop
from sharedqkv.training.recipe import PretrainRecipe
from sharedqkv.training.run_folder import RunFolder, now
from sharedqkv.training.schedule import Clock
from sharedqkv.training.trainer import PretrainTrainer, read_progress
from sharedqkv.training.watch import LossWatch

EVALUATION_SEED = 1234
"""Of the masks of held-out text: the same in every run, or losses could not be compared."""
EVALUATION_SHARE = 0.15
MOST_STEPS = 10**9
"""Stands for no limit, where the clock ends the run."""
MAY_CHANGE_ON_RESUME = {
    "output", "data", "rows_per_device", "workers", "compile", "gradient_checkpointing", "attn_implementation",
    "keep_checkpoints", "report_to",
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    run: RunFolder
    state: str
    step: int
    signal: int | None = None


def pretrain(recipe: PretrainRecipe, resume: str = "no") -> Outcome:
    """Train; `resume` is `no`, `auto` (the newest complete checkpoint, or from the start) or a checkpoint folder."""
    run = RunFolder(recipe.output)
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    is_main = int(os.environ.get("RANK", "0")) == 0
    _check_devices(recipe, world_size)
    _check_installed(recipe)
    train_rows = ShardedRows.open(recipe.data, "train", verify=is_main)
    validation_rows = ShardedRows.open(recipe.data, "validation")
    _check_layout(recipe, train_rows)
    tokenizer = AutoTokenizer.from_pretrained(Path(recipe.data) / "tokenizer")
    train_rows.manifest.check_tokenizer(tokenizer)
    data_hash = sha256_of(Path(recipe.data) / MANIFEST)

    checkpoint = _checkpoint_to_resume(run, resume, recipe, data_hash, is_main)
    max_steps = _steps_in_budget(recipe, train_rows)
    clock = None
    if recipe.max_minutes is not None:
        before_s = read_progress(checkpoint)["elapsed_s"] if checkpoint else 0.0
        clock = Clock(recipe.max_minutes * 60, before_s)

    args = _training_arguments(recipe, run, max_steps, world_size)
    set_seed(recipe.seed)
    config = recipe.model_config(train_rows.manifest.vocab_size, train_rows.length, train_rows.manifest.pad_id)
    model = _build_model(recipe, config)
    vocabulary = Vocabulary.of(tokenizer)
    train = MaskedBatches(
        train_rows,
        Masking(vocabulary, recipe.seed, recipe.mlm_share, recipe.whole_words),
        max_steps * recipe.rows_per_step,
        shuffle_seed=recipe.seed,
    )
    evaluation_masking = Masking(vocabulary, EVALUATION_SEED, EVALUATION_SHARE)
    validation = MaskedBatches(validation_rows, evaluation_masking, min(recipe.eval_rows, len(validation_rows)))

    if is_main:
        _begin(run, recipe, model, data_hash, checkpoint, max_steps if clock is None else None)
    watch, stop = LossWatch(run.path), Stop(clock)
    flops = forward_flops_per_token(config, train_rows.length, recipe.mlm_share)
    records = Records(run, recipe.rows_per_step * train_rows.length, flops, clock)
    trainer = PretrainTrainer(
        recipe,
        model,
        args,
        train,
        validation,
        watch,
        clock,
        processing_class=tokenizer,
        callbacks=[NonFiniteStop(watch), stop, records],
    )
    trainer.remove_callback(PrinterCallback)
    try:
        with stop.listening():
            trainer.resume(checkpoint)
        watch.check_now(trainer.state.global_step)
        return _finish(trainer, run, stop, is_main)
    except BaseException as error:
        if is_main:
            run.set_state("failed", error=f"{type(error).__name__}: {error}", ended=now())
        raise


def _check_devices(recipe: PretrainRecipe, world_size: int) -> None:
    if recipe.rows_per_step % (recipe.rows_per_device * world_size):
        raise ValueError(
            f"rows_per_step {recipe.rows_per_step} cannot be dealt to {world_size} processes of "
            f"{recipe.rows_per_device} rows each: make it a multiple of {recipe.rows_per_device * world_size}"
        )


def _check_installed(recipe: PretrainRecipe) -> None:
    for tracker in recipe.report_to:
        if importlib.util.find_spec(tracker) is None:
            raise ValueError(f"report_to names {tracker}, which is not installed: pip install {tracker}")


def _check_layout(recipe: PretrainRecipe, rows: ShardedRows) -> None:
    if recipe.next_sentence and rows.layout != "pairs":
        raise ValueError(
            f"next_sentence needs data of layout pairs, and {recipe.data} has {rows.layout}: "
            "prepare it with --layout pairs"
        )


def _steps_in_budget(recipe: PretrainRecipe, rows: ShardedRows) -> int:
    if recipe.max_steps is not None:
        return recipe.max_steps
    if recipe.max_minutes is not None:
        return MOST_STEPS
    if recipe.max_tokens is not None:
        return math.ceil(recipe.max_tokens / (recipe.rows_per_step * rows.length))
    assert recipe.max_epochs is not None
    return math.ceil(recipe.max_epochs * len(rows) / recipe.rows_per_step)


def _checkpoint_to_resume(
    run: RunFolder, resume: str, recipe: PretrainRecipe, data_hash: str, is_main: bool
) -> Path | None:
    if resume == "no":
        if run.exists():
            raise FileExistsError(
                f"{run.path} holds a run already: continue it with --resume auto, or choose another --output"
            )
        return None
    if not run.exists():
        if resume != "auto":
            raise FileNotFoundError(f"{run.path} is no run folder, so there is nothing to resume from {resume}")
        return None
    _check_same_run(run, recipe, data_hash)
    if resume != "auto":
        reason = checkpoints.damage_of(Path(resume))
        if reason is not None:
            raise ValueError(f"{resume} cannot be resumed from: {reason}. --resume auto takes the newest complete one")
        return Path(resume)
    found, skipped = checkpoints.newest_complete(run.checkpoints)
    if is_main:
        for bad in skipped:
            print(f"skipping {bad.path}: {bad.reason}", file=sys.stderr)
        print(f"resuming from {found or 'the start: there is no complete checkpoint'}", file=sys.stderr)
    return found


def _check_same_run(run: RunFolder, recipe: PretrainRecipe, data_hash: str) -> None:
    info = run.info()
    before, after = info["recipe"], _plain(recipe)
    changed = [
        f"{name} was {before.get(name)!r}, is {after[name]!r}"
        for name in after
        if name not in MAY_CHANGE_ON_RESUME and before.get(name) != after[name]
    ]
    if changed:
        raise ValueError(
            f"{run.path} is another run: {'; '.join(changed)}. Choose another --output, or the same recipe"
        )
    if info["data_sha256"] != data_hash:
        raise ValueError(f"{recipe.data} is not the data {run.path} was trained on (its {MANIFEST} differs)")


def _plain(recipe: PretrainRecipe) -> dict[str, Any]:
    """As JSON gives it back."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in recipe.to_dict().items()}


def _build_model(recipe: PretrainRecipe, config: SharedQKVConfig) -> Any:
    model_class = SharedQKVForPreTraining if recipe.next_sentence else SharedQKVForMaskedLM
    return model_class._from_config(config, attn_implementation=recipe.attn_implementation, dtype=torch.float32)


def _training_arguments(recipe: PretrainRecipe, run: RunFolder, max_steps: int, world_size: int) -> TrainingArguments:
    on_gpu = torch.cuda.is_available()
    return TrainingArguments(
        output_dir=str(run.checkpoints),
        max_steps=max_steps,
        per_device_train_batch_size=recipe.rows_per_device,
        gradient_accumulation_steps=recipe.rows_per_step // (recipe.rows_per_device * world_size),
        optim="adamw_torch_fused" if on_gpu else "adamw_torch",
        learning_rate=recipe.learning_rate,
        adam_beta1=recipe.betas[0],
        adam_beta2=recipe.betas[1],
        adam_epsilon=recipe.eps,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_grad_norm,
        bf16=recipe.bf16,
        torch_compile=recipe.compile,
        gradient_checkpointing=recipe.gradient_checkpointing,
        seed=recipe.seed,
        dataloader_num_workers=recipe.workers,
        dataloader_persistent_workers=recipe.workers > 0,
        dataloader_pin_memory=on_gpu,
        remove_unused_columns=False,
        logging_steps=recipe.logging_steps,
        logging_nan_inf_filter=False,
        eval_strategy="steps",
        eval_steps=recipe.eval_steps,
        save_strategy="steps",
        save_steps=recipe.save_steps,
        report_to=list(recipe.report_to),
        disable_tqdm=True,
        use_cpu=not on_gpu,
        ddp_find_unused_parameters=False,
    )


def _begin(
    run: RunFolder, recipe: PretrainRecipe, model: Any, data_hash: str, checkpoint: Path | None, max_steps: int | None
) -> None:
    if not run.exists():
        run.create(
            {
                "kind": "pretrain",
                "recipe": _plain(recipe),
                "data_sha256": data_hash,
                "parameters": model.num_parameters(),
                "max_steps": max_steps,
                "parent": None,
            }
        )
    step = checkpoints.step_of(checkpoint) if checkpoint else 0
    run.cut_metrics_after(step or 0)
    run.begin_sitting(str(checkpoint) if checkpoint else None)


def _finish(trainer: PretrainTrainer, run: RunFolder, stop: Stop, is_main: bool) -> Outcome:
    step = trainer.state.global_step
    if stop.signal is not None and step < trainer.state.max_steps:
        if is_main:
            run.set_state("stopped", ended=now(), step=step)
        return Outcome(run, "stopped", step, stop.signal)
    metrics = trainer.evaluate() if not _evaluated_at(run, step) else {}
    _save_model(trainer, run, is_main)
    if is_main:
        last = [record for record in run.metrics() if "eval_loss" in record]
        held_out = metrics.get("eval_loss", last[-1]["eval_loss"])
        plots.draw(run)
        run.set_state("done", ended=now(), step=step, eval_loss=held_out)
    return Outcome(run, "done", step)


def _evaluated_at(run: RunFolder, step: int) -> bool:
    return any(record["step"] == step and "eval_loss" in record for record in run.metrics())


def _save_model(trainer: PretrainTrainer, run: RunFolder, is_main: bool) -> None:
    """Into a folder beside first: `model/` is there whole or not at all."""
    unfinished = run.path / ".model"
    trainer.save_model(str(unfinished))
    trainer.accelerator.wait_for_everyone()
    if is_main:
        if run.model.exists():
            shutil.rmtree(run.model)
        os.replace(unfinished, run.model)


def quiet_transformers() -> None:
    """Its own progress bars and advice would break ours."""
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
