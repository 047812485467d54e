"""The models that are tried, and where their predictions lie.

`<run>/robustness/<task>/<condition>/<noise seed>/<fine-tuning seed>.jsonl` holds the predictions under all severities,
`….json` beside it, written last, says what they are of.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from sharedqkv.data.files import sha256_of
from sharedqkv.robustness.conditions import Condition, Examples
from sharedqkv.tasks.cells import Cell, kept_cells, read_json, settings_sha256
from sharedqkv.tasks.predict import Predictor
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
