"""One pre-training run, from a recipe to a run folder."""

import importlib.util
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from filelock import FileLock, Timeout
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
    world_size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    is_main = rank == 0
    _check_devices(recipe, world_size)
    _check_installed(recipe)
    train_rows = ShardedRows.open(recipe.data, "train", verify=is_main)
    validation_rows = ShardedRows.open(recipe.data, "validation")
    _check_layout(recipe, train_rows)
    tokenizer = AutoTokenizer.from_pretrained(Path(recipe.data) / "tokenizer")
    train_rows.manifest.check_tokenizer(tokenizer)
    data_hash = sha256_of(Path(recipe.data) / MANIFEST)
    max_steps = _steps_in_budget(recipe, train_rows)
    args = _training_arguments(recipe, run, max_steps, world_size)  # this also joins the processes

    with _claimed(run, is_main):
        checkpoint, finished = _first_process_decides(lambda: _where_to_start(run, resume, recipe, data_hash), is_main)
        if finished:
            PartialState().destroy_process_group()
            return Outcome(run, "done", run.info()["step"])
        if is_main:
            _warn_of_little_data(recipe, train_rows, validation_rows)
        set_seed(recipe.seed)
        config = recipe.model_config(train_rows.manifest.vocab_size, train_rows.length, train_rows.manifest.pad_id)
        model = _build_model(recipe, config)
        clock = _make_clock(recipe, checkpoint)
        watch, stop = LossWatch(run.path), Stop(clock)
        flops = forward_flops_per_token(config, train_rows.length, recipe.mlm_share)
        records = Records(run, recipe.rows_per_step * train_rows.length, flops, clock)
        train, validation = _make_datasets(recipe, train_rows, validation_rows, tokenizer, max_steps)
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
        set_seed(recipe.seed + rank)  # processes must not share their dropout masks
        if is_main:
            _begin(run, recipe, model, data_hash, checkpoint, max_steps if clock is None else None)
        return _train(trainer, run, checkpoint, stop, is_main)


def _make_clock(recipe: PretrainRecipe, checkpoint: Path | None) -> Clock | None:
    if recipe.max_minutes is None:
        return None
    before_s = read_progress(checkpoint)["elapsed_s"] if checkpoint else 0.0
    return Clock(recipe.max_minutes * 60, before_s)


def _make_datasets(
    recipe: PretrainRecipe, train_rows: ShardedRows, validation_rows: ShardedRows, tokenizer: Any, max_steps: int
) -> tuple[MaskedBatches, MaskedBatches]:
    vocabulary = Vocabulary.of(tokenizer)
    masking = Masking(vocabulary, recipe.seed, recipe.mlm_share, recipe.whole_words)
    train = MaskedBatches(train_rows, masking, max_steps * recipe.rows_per_step, shuffle_seed=recipe.seed)
    fixed_masking = Masking(vocabulary, EVALUATION_SEED, EVALUATION_SHARE)
    return train, MaskedBatches(validation_rows, fixed_masking, min(recipe.eval_rows, len(validation_rows)))


def _train(trainer: PretrainTrainer, run: RunFolder, checkpoint: Path | None, stop: Stop, is_main: bool) -> Outcome:
    try:
        with stop.listening():
            trainer.resume(checkpoint)
            trainer.watch.check_now(trainer.state.global_step)
            outcome = _stopped(trainer, run, stop, is_main)  # told here: the signal may come twice
        outcome = outcome or _finish(trainer, run, is_main)
    except BaseException as error:
        if is_main and run.info()["state"] == "running":
            run.set_state("failed", error=f"{type(error).__name__}: {error}", ended=now())
        raise
    if outcome.state == "done":
        trainer.accelerator.wait_for_everyone()
    trainer.leave_group()
    return outcome


@contextmanager
def _claimed(run: RunFolder, is_main: bool) -> Iterator[None]:
    """One training at a time in a run folder: a requeued job may start while its predecessor still dies."""
    lock = FileLock(run.path / ".lock", timeout=0)
    if is_main:
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise ValueError(f"another process is training in {run.path}: wait for it or stop it") from None
        except OSError as error:
            raise OSError(f"{run.path} cannot be written ({error}): choose another --output") from error
    try:
        yield
    finally:
        lock.release()


def _first_process_decides(decide: Callable[[], Any], is_main: bool) -> Any:
    """Files may look different to every machine of a cluster: one looks, all follow, errors included."""
    answer: list[Any] = [None, None]
    if is_main:
        try:
            answer[0] = decide()
        except (ValueError, OSError) as error:
            answer[1] = error
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.broadcast_object_list(answer, src=0)
    if answer[1] is not None:
        raise answer[1]
    return answer[0]


def _check_devices(recipe: PretrainRecipe, world_size: int) -> None:
    gpus = torch.cuda.device_count()
    if world_size == 1 and gpus > 1:
        raise ValueError(
            f"{gpus} GPUs and one process: start one process a GPU (torchrun --nproc-per-node {gpus} -m sharedqkv "
            "pretrain ...), or set CUDA_VISIBLE_DEVICES to one of them"
        )
    if recipe.rows_per_step % (recipe.rows_per_device * world_size):
        raise ValueError(
            f"rows_per_step {recipe.rows_per_step} cannot be dealt to {world_size} processes of "
            f"{recipe.rows_per_device} rows each: make it a multiple of {recipe.rows_per_device * world_size}"
        )


def _check_installed(recipe: PretrainRecipe) -> None:
    for tracker in recipe.report_to:
        if importlib.util.find_spec(tracker) is None:
            raise ValueError(f"report_to names {tracker}, which is not installed: pip install {tracker}")


def _warn_of_little_data(recipe: PretrainRecipe, train_rows: ShardedRows, validation_rows: ShardedRows) -> None:
    if len(train_rows) < recipe.rows_per_step:
        print(
            f"warning: {recipe.data} has {len(train_rows)} training rows, fewer than one step takes "
            f"({recipe.rows_per_step}): every step repeats itself",
            file=sys.stderr,
        )
    if len(validation_rows) < 32:
        print(f"warning: held-out losses rest on {len(validation_rows)} rows only", file=sys.stderr)


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


def _where_to_start(run: RunFolder, resume: str, recipe: PretrainRecipe, data_hash: str) -> tuple[Path | None, bool]:
    """The checkpoint to resume from, or None for the start; and whether there is nothing left to do."""
    trained = run.exists() and bool(run.metrics() or checkpoints.checkpoints_in(run.checkpoints))
    if resume == "no":
        if trained:
            raise FileExistsError(
                f"{run.path} holds a run already: continue it with --resume auto, or choose another --output"
            )
        return None, False
    if not trained:
        if resume != "auto":
            raise FileNotFoundError(f"{run.path} holds no run, so there is nothing to resume from {resume}")
        return None, False
    _check_same_run(run, recipe, data_hash)
    if resume != "auto":
        return _named_checkpoint(run, Path(resume)), False
    if run.info()["state"] == "done":
        print(f"{run.path} is done; nothing to resume", file=sys.stderr)
        return None, True
    found, skipped = checkpoints.newest_complete(run.checkpoints)
    for bad in skipped:
        print(f"skipping {bad.path}: {bad.reason}", file=sys.stderr)
    print(f"resuming from {found or 'the start: there is no complete checkpoint'}", file=sys.stderr)
    return found, False


def _named_checkpoint(run: RunFolder, checkpoint: Path) -> Path:
    if checkpoint.resolve().parent != run.checkpoints.resolve() or checkpoints.step_of(checkpoint) is None:
        raise ValueError(f"{checkpoint} is no checkpoint of this run: those are {run.checkpoints}/checkpoint-STEP")
    reason = checkpoints.damage_of(checkpoint)
    if reason is not None:
        raise ValueError(f"{checkpoint} cannot be resumed from: {reason}. --resume auto takes the newest complete one")
    return checkpoint


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
    if checkpoint is None:
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
    step = (checkpoints.step_of(checkpoint) or 0) if checkpoint else 0
    run.cut_metrics_after(step)
    for later in checkpoints.checkpoints_in(run.checkpoints):
        if (checkpoints.step_of(later) or 0) > step:  # unfinished, damaged, or of a future that is now another
            print(f"removing {later}", file=sys.stderr)
            checkpoints.remove(later)
    run.begin_sitting(str(checkpoint) if checkpoint else None)


def _stopped(trainer: PretrainTrainer, run: RunFolder, stop: Stop, is_main: bool) -> Outcome | None:
    """None if nobody asked for it, or if it was the last step anyway."""
    step = trainer.state.global_step
    if stop.signal is None or step >= trainer.state.max_steps:
        return None
    if is_main:
        run.set_state("stopped", ended=now(), step=step)
    return Outcome(run, "stopped", step, stop.signal)


def _finish(trainer: PretrainTrainer, run: RunFolder, is_main: bool) -> Outcome:
    step = trainer.state.global_step
    if trainer.last_evaluation is None or trainer.last_evaluation[0] != step:
        trainer.evaluate()
    _save_model(trainer, run, is_main)
    if is_main:
        assert trainer.last_evaluation is not None
        plots.draw(run)
        run.set_state("done", ended=now(), step=step, eval_loss=trainer.last_evaluation[1])
    return Outcome(run, "done", step)


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
