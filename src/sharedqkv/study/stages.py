"""What a cell of each stage does, with the same functions as the commands of that name."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from sharedqkv.accounting.timing import time_models
from sharedqkv.data.prepare import PrepareArguments, prepare
from sharedqkv.data.tokenizer import load_tokenizer
from sharedqkv.models import SharedQKVModel
from sharedqkv.robustness.grid import run_grid
from sharedqkv.schema import build
from sharedqkv.study.cells import Cell, hash_of, record_of
from sharedqkv.study.definition import Study
from sharedqkv.study.launch import launch
from sharedqkv.study.world import World, write_world
from sharedqkv.tasks.cells import write_json
from sharedqkv.tasks.finetune import finetune
from sharedqkv.training.pretrain import pretrain
from sharedqkv.training.run_folder import RunFolder


def run_cell(cell: Cell, study: Study, folder: Path, gpus: Sequence[str] = ()) -> None:
    """Raises whatever goes wrong. `gpus` are for a run over several of them; this process itself sees one at most."""
    if cell.stage == "pretrain":
        _pretrain(cell, study, folder, gpus)
    else:
        _RUN[cell.stage](cell, study, folder)


def _prepare(cell: Cell, study: Study, folder: Path) -> None:
    values: dict[str, Any] = {**study.prepare, "output": str(folder / "corpus")}
    if study.world is not None:
        world = folder / "world"
        rows = {split: getattr(study.world, split) for split in ("train", "validation", "out_of_domain")}
        write_world(world, World(study.world.seed), study.world.world, rows)
        shutil.rmtree(folder / "corpus", ignore_errors=True)  # made of files that were there before
        values |= {
            "source": [str(world / "corpus" / "train.jsonl")],
            "validation_source": [str(world / "corpus" / "validation.jsonl")],
        }
    prepare(build(PrepareArguments, values, study.name))


def _pretrain(cell: Cell, study: Study, folder: Path, gpus: Sequence[str]) -> None:
    assert cell.entrant is not None
    output = cell.folder(folder)
    recipe = study.recipe(cell.entrant, cell.seed or 0, folder / "corpus", output)
    if study.file.gpus_per_run > 1:
        launch(recipe, study.file.gpus_per_run, gpus)
        return
    outcome = pretrain(recipe, "auto" if RunFolder(output).exists() else "no")
    if outcome.signal is not None:
        raise KeyboardInterrupt  # it has saved a checkpoint and goes on from there


def _finetune(cell: Cell, study: Study, folder: Path) -> None:
    output = cell.folder(folder)
    (pretrained,) = cell.needs
    outcome = finetune(
        str(pretrained.folder(folder)),
        study.tasks,
        study.finetune_seeds,
        str(output),
        data=_task_data(study, folder),
        keep_models=study.robust is not None,
    )
    if outcome.broken:
        raise ValueError("; ".join(f"{name}: {error}" for name, error in outcome.broken.items()))


def _robust(cell: Cell, study: Study, folder: Path) -> None:
    (finetuned,) = cell.needs
    assert study.robust is not None
    outcome = run_grid([str(finetuned.folder(folder))], study.robust, _task_data(study, folder))
    if outcome.broken:
        raise ValueError("; ".join(f"{name}: {error}" for name, error in outcome.broken.items()))


def _task_data(study: Study, folder: Path) -> str | None:
    return str(folder / "world" / "tasks") if study.task_data is None and study.world is not None else study.task_data


def remove_if_of_other_settings(cell: Cell, study: Study, folder: Path) -> None:
    """What was begun with other settings, or by nobody knows whom, must neither be gone on with nor be in the way."""
    outputs = {"prepare": folder / "corpus", "pretrain": cell.folder(folder), "finetune": cell.folder(folder)}
    if cell.stage in outputs and record_of(cell, folder).get("hash") != hash_of(cell, study):
        shutil.rmtree(outputs[cell.stage], ignore_errors=True)


def _maps(cell: Cell, study: Study, folder: Path) -> None:
    """Attention of the study's sentence in each model of the first seed, averaged over heads."""
    entrants, tokens = {}, []
    for trained in cell.needs:
        assert trained.entrant is not None
        model_folder = RunFolder(trained.folder(folder)).model
        tokenizer = load_tokenizer(str(model_folder))
        model = SharedQKVModel.from_pretrained(model_folder, attn_implementation="eager").eval()
        inputs = tokenizer(study.file.sentence, return_tensors="pt")
        with torch.no_grad():
            layers = model(**inputs, output_attentions=True).attentions
        tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        entrants[trained.entrant.slug] = [
            [[round(weight, 4) for weight in row] for row in layer[0].mean(0).tolist()] for layer in layers
        ]
    write_json(folder / "maps.json", {"sentence": study.file.sentence, "tokens": tokens, "entrants": entrants})


def _bench(cell: Cell, study: Study, folder: Path) -> None:
    """Steps as the study trains them."""
    assert study.bench is not None
    bench = study.bench
    recipe = study.recipe(study.entrants[0], 0, folder / "corpus", folder / "run")
    measured = time_models(
        {entrant.slug: study.model_config(entrant, bench.length) for entrant in study.entrants},
        bench.rows,
        bench.length,
        bench.repeats,
        bf16=recipe.bf16,
        compile=recipe.compile,
        attn_implementation=recipe.attn_implementation,
    )
    write_json(folder / "bench.json", measured)


_RUN = {
    "prepare": _prepare,
    "finetune": _finetune,
    "robust": _robust,
    "maps": _maps,
    "bench": _bench,
}
