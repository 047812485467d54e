"""Scores of models that were tried, from the predictions that lie in their runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from sharedqkv.evidence.finetuned import FinetunedModel, predictions_of, task_metrics
from sharedqkv.evidence.runs import Predictions, RunScores, TaskRuns, combine_scores, score_runs
from sharedqkv.robustness.conditions import Condition, counted
from sharedqkv.robustness.tried import trial_predictions, trial_record
from sharedqkv.tasks.cells import kept_cells
from sharedqkv.tasks.registry import get_task
from sharedqkv.tasks.task import Record


def mean(parts: Mapping[str, Any]) -> Any:
    """For `combine_scores`."""
    return sum(parts.values()) / len(parts)


class ScoreReader:
    """The scores of all models on one task, from the predictions that `run_grid` has left in their runs."""

    def __init__(self, models: Sequence[FinetunedModel], task: str, untried: Mapping[str, str]):
        self.models = models
        self.task = task
        self.untried = untried

    def lacks(self, conditions: Sequence[Condition]) -> str | None:
        """Why there are no scores under these conditions, if so. What is untried now may have old predictions."""
        for condition in conditions:
            if reason := self.untried.get(f"{self.task}, {condition}"):
                return reason
            records = [self.record(condition, run, seed) for run, seed in self._cells()]
            if any(record is None for record in records):
                return "not every model has been tried"
            if any(
                record.get("severities", list(condition.severities)) != list(condition.severities)
                for record in records
                if record
            ):
                return "tried with other severities: run it again"
        return None

    def record(self, condition: Condition, run: Any, seed: int) -> dict[str, Any] | None:
        return trial_record(run, self.task, condition, seed)

    def any_record(self, condition: Condition) -> dict[str, Any]:
        run, seed = self._cells()[0]
        record = self.record(condition, run, seed)
        assert record is not None
        return record

    def scores(self, conditions: Sequence[Condition]) -> dict[int, dict[str, RunScores]]:
        """Severity → model → its scores; the conditions differ only in the noise's seed and are averaged."""
        by_seed = {str(condition.seed): self._scores_under(condition) for condition in conditions}
        return {
            severity: {
                model.name: combine_scores(
                    {seed: scores[severity][index] for seed, scores in by_seed.items()}, mean, self.task, True
                )
                for index, model in enumerate(self.models)
            }
            for severity in conditions[0].severities
        }

    def _cells(self) -> list[tuple[Any, int]]:
        runs = [run for model in self.models for run in model.runs.values()]
        return [(run, cell.seed) for run in runs for cell in kept_cells(run) if cell.task == self.task]

    def _scores_under(self, condition: Condition) -> dict[int, list[RunScores]]:
        """Severity → the scores of each model."""
        cells = {cell: self._predictions(*cell, condition) for cell in self._cells()}

        def runs_of(model: FinetunedModel, severity: int) -> TaskRuns:
            runs = {
                pretraining_seed: {seed: mine[severity] for (its_run, seed), mine in cells.items() if its_run == run}
                for pretraining_seed, run in model.runs.items()
            }
            return TaskRuns(model.name, self.task, runs)

        metrics = task_metrics(get_task(self.task))
        return {
            severity: score_runs([runs_of(model, severity) for model in self.models], metrics)
            for severity in condition.severities
        }

    def _predictions(self, run: Any, seed: int, condition: Condition) -> dict[int, Predictions]:
        """By severity, from one file."""
        by_severity: dict[int, list[Record]] = {severity: [] for severity in condition.severities}
        for record in trial_predictions(run, self.task, condition, seed):
            by_severity[record["severity"]].append(record)
        task = get_task(self.task)
        return {
            severity: predictions_of(counted(condition, task, records), self.task)
            for severity, records in by_severity.items()
        }
