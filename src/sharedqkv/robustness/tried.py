"""The models that are tried, and where their predictions lie.

`<run>/robustness/<task>/<condition>/<noise seed>/<fine-tuning seed>.jsonl` holds the predictions under all severities,
`….json` beside it, written last, says what they are of. Records that are only read have one file for all fine-tuning
seeds, `<noise seed>.json.xz`.
"""

import json
import lzma
import shutil
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from sharedqkv.data.files import atomic_write, sha256_of
from sharedqkv.robustness.conditions import Condition, Examples
from sharedqkv.tasks.cells import (
    Cell,
    from_columns,
    kept_cells,
    read_json,
    read_predictions,
    settings_sha256,
    to_columns,
)
from sharedqkv.tasks.predict import Predictor
from sharedqkv.tasks.task import Record
from sharedqkv.training.run_folder import RunFolder


class TriedModel:
    """A fine-tuned model that a run kept."""

    def __init__(self, cell: Cell):
        record = cell.record()
        assert record is not None
        self.cell = cell
        self.sha256: str = record["settings_sha256"]
        tokenizer = sorted([*cell.model.glob("tokenizer*.json"), *cell.model.glob("vocab.txt")])
        limits = ("max_length", "stride", "max_question_length")
        self.inputs_like = (*map(sha256_of, tokenizer), *(record["recipe"][name] for name in limits))
        """Models for which these are equal take the same inputs."""

    @cached_property
    def predictor(self) -> Predictor:
        return Predictor(str(self.cell.run), self.cell.task, self.cell.seed)

    def unload(self) -> None:
        self.__dict__.pop("predictor", None)

    def settings(self, condition: Condition, loaded: Examples) -> dict[str, Any]:
        return {
            "model": self.sha256,
            "condition": condition.name,
            "noise_seed": condition.seed,
            "severities": list(condition.severities),
            "data_sha256": loaded.sha256,
        }

    def file(self, condition: Condition) -> Path:
        return cell_file(self.cell.run, self.cell.task, condition, self.cell.seed)

    def finished(self, condition: Condition, loaded: Examples) -> bool:
        file = self.file(condition)
        record = read_json(file.with_suffix(".json"))
        settings = self.settings(condition, loaded)
        if record is None or record["settings_sha256"] != settings_sha256(settings) or not file.is_file():
            return False
        return bool(sha256_of(file) == record["predictions_sha256"])


def cell_file(run: Path, task: str, condition: Condition, seed: int) -> Path:
    """Of the predictions; the record lies beside it as .json."""
    return run / "robustness" / task / condition.name / str(condition.seed) / f"{seed}.jsonl"


def trial_record(run: Path, task: str, condition: Condition, seed: int) -> dict[str, Any] | None:
    """What a model's predictions are of; None where it has not been tried."""
    file = cell_file(run, task, condition, seed)
    if (packed := _packed_file(file.parent)).exists():
        return _unpacked(packed).get(file.stem, {}).get("record")
    return read_json(file.with_suffix(".json"))


def trial_predictions(run: Path, task: str, condition: Condition, seed: int) -> list[Record]:
    file = cell_file(run, task, condition, seed)
    if (packed := _packed_file(file.parent)).exists():
        return from_columns(_unpacked(packed)[file.stem]["predictions"])
    return read_predictions(file)


def pack_trials(run: Path) -> None:
    """For records that are only read: there are hundreds in a run, and a million predictions. What decides is kept, the
    scores it was decided by are not."""
    for folder in sorted(path for path in (run / "robustness").glob("*/*/*") if path.is_dir()):
        trials = {
            file.stem: {
                "record": read_json(file),
                "predictions": to_columns(read_predictions(file.with_suffix(".jsonl")), without=("scores",)),
            }
            for file in sorted(folder.glob("*.json"))
        }
        if not trials:
            continue  # unfinished ones
        file = _packed_file(folder)
        trials = {**(_unpacked(file) if file.exists() else {}), **trials}  # an earlier packing may have been cut short
        with atomic_write(file) as packed:
            packed.write(lzma.compress(json.dumps(trials, ensure_ascii=False).encode()))
        _unpacked.cache_clear()
        shutil.rmtree(folder)


def _packed_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json.xz")


@lru_cache(maxsize=1)  # one fine-tuning seed after the other is asked for
def _unpacked(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(lzma.decompress(file.read_bytes())))
    except (ValueError, lzma.LZMAError) as error:
        raise ValueError(f"{file} is damaged ({error}): take it from the records again") from None


def models_of(runs: Sequence[str], tasks: Sequence[str]) -> dict[str, list[TriedModel]]:
    """Task → the kept models of all runs."""
    found: dict[str, list[TriedModel]] = {}
    for run in runs:
        info = RunFolder(run).info()
        if info["kind"] != "finetune":
            raise ValueError(f"{run} is a run of kind {info['kind']}: give runs of `sharedqkv finetune --keep-models`")
        kept = [cell for cell in kept_cells(Path(run)) if not tasks or cell.task in tasks]
        if not kept:
            raise ValueError(f"{run} has no finished cell of {', '.join(tasks) or 'any task'}")
        without = [str(cell) for cell in kept if not cell.model.is_dir()]
        if without:
            raise ValueError(
                f"{run} kept no model of {'; '.join(without)}: run its `sharedqkv finetune` again with --keep-models"
            )
        for cell in kept:
            found.setdefault(cell.task, []).append(TriedModel(cell))
    return found
