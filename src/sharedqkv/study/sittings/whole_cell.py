"""A cell from pre-training to robustness in one go: `python -m sharedqkv.study.sittings.whole_cell CELL.yaml`.

Every stage is the command of its name. A small model leaves a GPU idle most of the time when it is fine-tuned, so
that the runs of tasks and seeds go side by side, each in a folder of its own; they are put together afterwards.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from sharedqkv import schema
from sharedqkv.robustness.domains import DOMAINS
from sharedqkv.robustness.grid import Plan as RobustPlan
from sharedqkv.tasks.cells import Cell, kept_cells, write_json
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.tasks.summary import summary
from sharedqkv.training.run_folder import RunFolder, now

CONSOLE = (sys.executable, "-m", "sharedqkv_console")
FINETUNED = "finetune"
"""Folder of the fine-tuning run, below that of the pre-training run."""
SECONDS = "stages.json"
"""What each stage took."""


@dataclass(frozen=True)
class WholeCell:
    output: str
    """folder of the pre-training run, whose recipe lies in it as recipe.yaml"""
    tasks: dict[str, Any]
    """task → its recipe"""
    seeds: tuple[int, ...]
    """of fine-tuning"""
    side_by_side: int
    """so many fine-tuning runs at once"""
    data: str | None = None
    """folder of the tasks; none: the hub"""
    robust: tuple[str, ...] = ()
    """arguments of `sharedqkv robust`; none: no such stage"""


@dataclass(frozen=True)
class _Part:
    """One task with one seed."""

    task: str
    seed: int
    recipe: FinetuneRecipe


def robust_arguments(plan: RobustPlan, tasks: Container[str]) -> tuple[str, ...]:
    domains = [name for name in plan.domains if any(task in tasks for task in DOMAINS[name].tasks)]

    def listed(values: Sequence[Any]) -> str:
        return ",".join(map(str, values)) + ","

    return (
        *("--noise", listed(plan.noises) if plan.noises else "none"),
        *("--severity", listed(plan.severities).rstrip(",")),
        *("--seeds", listed(plan.seeds)),
        *("--domains", listed(domains) if domains else "none"),
        *(("--examples", str(plan.limit)) if plan.limit else ()),
    )


def plain(recipe: Any) -> dict[str, Any]:
    """A recipe's fields as YAML has them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in recipe.to_dict().items()}


def run_whole_cell(cell: WholeCell, console: Sequence[str] = CONSOLE) -> None:
    output = Path(cell.output)
    seconds: dict[str, float] = {}

    @contextmanager
    def timed(stage: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        seconds[stage] = round(time.monotonic() - began, 1)
        write_json(output / SECONDS, seconds)

    with timed("pretrain"):
        subprocess.run([*console, "pretrain", str(output / "recipe.yaml")], check=True)
    with timed("finetune"):
        _Finetuning(cell, console).run()
    if cell.robust:
        data = ["--data", cell.data] if cell.data else []
        run, report = str(output / FINETUNED), str(output / "robust_report")
        with timed("robust"):
            subprocess.run([*console, "robust", run, *cell.robust, *data, "--output", report], check=True)


class _Finetuning:
    def __init__(self, cell: WholeCell, console: Sequence[str]):
        self.cell = cell
        self.console = console
        self.folder = Path(cell.output) / "parts"
        self.running: list[tuple[_Part, subprocess.Popen[bytes]]] = []
        # Those with a search first: the other seeds of their tasks wait for it.
        recipes = {task: schema.build(FinetuneRecipe, fields, task) for task, fields in cell.tasks.items()}
        searching = [_Part(task, cell.seeds[0], recipe) for task, recipe in recipes.items() if recipe.search]
        others = [_Part(task, seed, r) for task, r in recipes.items() for seed in cell.seeds if not r.search]
        self.waiting = [*searching, *others]

    def run(self) -> None:
        ended: list[_Part] = []
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < self.cell.side_by_side:
                    self._start(self.waiting.pop(0))
                for part, process in [pair for pair in self.running if pair[1].poll() is not None]:
                    self.running.remove((part, process))
                    self._end(part, process.returncode)
                    ended.append(part)
                time.sleep(0.1)
        finally:
            for _, process in self.running:
                process.kill()
                process.wait()
        self._put_together(ended)

    def _output(self, part: _Part) -> Path:
        return self.folder / f"{part.task}-{part.seed}"

    def _start(self, part: _Part) -> None:
        output = self._output(part)
        output.mkdir(parents=True)
        recipe = output / "recipe.yaml"
        recipe.write_text(yaml.safe_dump(plain(part.recipe)), encoding="utf-8")
        command = [*self.console, "finetune", "--model", self.cell.output, "--tasks", part.task]
        command += ["--seeds", f"{part.seed},", "--recipe", str(recipe), "--output", str(output)]
        command += ["--data", self.cell.data] if self.cell.data else []
        command += ["--keep-models"] if self.cell.robust else []
        with open(output / "log.txt", "wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
        self.running.append((part, process))

    def _end(self, part: _Part, code: int) -> None:
        if code:
            log = (self._output(part) / "log.txt").read_text(encoding="utf-8", errors="replace")
            raise OSError(f"fine-tuning on {part.task} with seed {part.seed} ended with {code}:\n{log[-1500:]}")
        if part.recipe.search:
            record = Cell(self._output(part), part.task, part.seed).record()
            assert record is not None
            found = schema.build(FinetuneRecipe, record["recipe"], part.task)
            others = [replace(part, seed=seed, recipe=found) for seed in self.cell.seeds if seed != part.seed]
            self.waiting = [*others, *self.waiting]

    def _put_together(self, parts: Sequence[_Part]) -> None:
        """One run folder, as if a single command had made it."""
        whole = RunFolder(Path(self.cell.output) / FINETUNED)
        infos = []
        for part in sorted(parts, key=lambda part: (list(self.cell.tasks).index(part.task), part.seed)):
            made = self._output(part)
            infos.append(RunFolder(made).info())
            for name in ("cells", "predictions", "search", "models"):
                _move_into(made / name, whole.path / name)
        records = [record for cell in kept_cells(whole.path) if (record := cell.record()) is not None]
        sittings = [sitting for info in infos for sitting in info["sittings"]]
        whole.write_info({**infos[0], "sittings": sittings, "scores": summary(records), "ended": now()})
        shutil.rmtree(self.folder)


def _move_into(source: Path, target: Path) -> None:
    """Files and folders that are only on one side; folders that are on both are gone through."""
    if not source.exists():
        return
    if source.is_dir() and target.exists():
        for child in source.iterdir():
            _move_into(child, target / child.name)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(source, target)


def main(arguments: Sequence[str]) -> int:
    (file,) = arguments
    try:
        run_whole_cell(schema.load_yaml(WholeCell, Path(file)))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        return error.returncode  # the command itself has said why
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
