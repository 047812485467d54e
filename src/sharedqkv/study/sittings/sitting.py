"""One sitting: as many cells as fit into the time, each in a process of its own."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from sharedqkv.study.sittings.costs import START_S, expected_s
from sharedqkv.study.sittings.plan import Cell
from sharedqkv.study.sittings.records import Records
from sharedqkv.study.sittings.whole_cell import (
    CONSOLE,
    FINETUNED,
    GIVES_WAY,
    SECONDS,
    WholeCell,
    last_words,
    plain,
    robust_arguments,
)
from sharedqkv.tasks.cells import read_json
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.training.recipe import PretrainRecipe
from sharedqkv.training.run_folder import RunFolder, now

FINETUNINGS_AT_ONCE = 12
"""Where there are as many cores: each keeps one busy, and some GB of the device if it trains several seeds as one;
twelve of `medium`, in six cells, took up to 102 GiB of it."""
APART_S = 10.0
"""Between two starts: cells that start together end together, and the device idles until the next have started."""
_NEARLY_DONE = 0.1
"""Of what it was expected to take: so much is left at least of a cell that has not ended."""
_LET_GO = ("checkpoints", "model", FINETUNED, "parts")


@dataclass(frozen=True)
class Commands:
    """Of a cell that is only pre-trained, and of one that goes on to the tasks; a file follows each."""

    pretrain: tuple[str, ...] = (sys.executable, "-m", CONSOLE, "pretrain")
    whole_cell: tuple[str, ...] = (sys.executable, "-m", "sharedqkv.study.sittings.run_whole_cell")


@dataclass
class _Running:
    cell: Cell
    process: subprocess.Popen[bytes]
    began: float
    output: Path
    expected_s: float
    """Of the device."""
    used_s: float = 0.0
    """Of the device: its share of the time, as if all that run had alike."""

    @property
    def left_s(self) -> float:
        return max(self.expected_s - self.used_s, _NEARLY_DONE * self.expected_s)

    @property
    def late(self) -> float:
        """How many times as much as expected it has used."""
        return self.used_s / max(self.expected_s, 1.0)  # notes of the shortest have 0.0

    @property
    def is_past_start(self) -> bool:
        return time.monotonic() - self.began > START_S


@dataclass
class Sitting:
    records: Records
    corpus: Path
    work: Path
    seconds: float
    side_by_side: int = 1
    archive: Path | None = None
    """Of what came to the records; rewritten after every cell, so that only what is running can be lost."""
    keep_models: bool = False
    task_data: Path | None = None
    """Folder of the tasks, or None for the hub."""
    expected: float | None = None
    """Seconds of the device for a whole run, where that is known better than from those before."""
    variants: tuple[str, ...] | None = None
    """Whose cells are run; None: all of the plan."""
    say: Callable[[str], None] = print
    commands: Commands = Commands()

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.side_by_side < 1:
            raise ValueError("seconds must be positive, and side_by_side at least 1")
        if self.expected is not None and self.expected <= 0:
            raise ValueError(f"expected {self.expected:g} s of the device for a run: must be positive")
        if self.task_data is not None and not self.task_data.is_dir():
            raise FileNotFoundError(f"{self.task_data}: no such folder of tasks")
        planned = list(dict.fromkeys(cell.variant for cell in self.records.plan.cells))
        if unknown := [variant for variant in self.variants or () if variant not in planned]:
            raise ValueError(f"{unknown[0]} is not in the plan, which has {', '.join(planned)}")
        self.deadline = time.monotonic() + self.seconds
        self.counted_to = time.monotonic()
        self.running: list[_Running] = []
        self.failed: set[Cell] = set()
        self.ended: list[Cell] = []

    def run(self) -> None:
        self.records.keep_manifest(self.corpus)
        wanted = [cell for cell in self.records.plan.cells if self.variants is None or cell.variant in self.variants]
        cells = [cell for cell in wanted if not self.records.is_settled(cell)]
        try:
            while time.monotonic() < self.deadline:
                self._count_time()
                self._collect()
                self._count_time()  # what is begun now has no part in what was kept and packed
                if self._may_start_one() and (found := self._next(cells)) is not None:
                    self._start(*found)
                if not self.running:
                    break
                time.sleep(0.2)
        finally:
            for cut in self.running:
                os.killpg(cut.process.pid, signal.SIGKILL)  # a whole cell has children
                cut.process.wait()
                self.say(f"{self._name(cut.cell)}: stopped before its end")
            self._save()
        left = [cell for cell in self.records.plan.cells if self.records.state(cell) != "done"]
        self.say(f"{len(self.records.plan.cells) - len(left)} of {len(self.records.plan.cells)} cells are done")

    def _may_start_one(self) -> bool:
        begun_before = time.monotonic() - APART_S
        return len(self.running) < self.side_by_side and all(cell.began <= begun_before for cell in self.running)

    def _next(self, cells: list[Cell]) -> tuple[Cell, PretrainRecipe, dict[str, FinetuneRecipe]] | None:
        """The most important cell that can be run now and ends in time."""
        for cell in cells:
            if cell in self.failed or self.records.state(cell) == "done" or cell in [r.cell for r in self.running]:
                continue
            if not self._ends_in_time(cell):
                continue
            recipe = self.records.recipe(cell, self.corpus, self.work / self._name(cell))
            tasks = self.records.task_recipes(cell) if self.records.plan.goes_on_to_tasks(cell) else {}
            if recipe is not None and tasks is not None:
                return cell, recipe, tasks
        return None

    def _ends_in_time(self, cell: Cell) -> bool:
        """If it shares the device with those that run, and takes as much longer than expected as they do."""
        late = max([1.0, *(running.late for running in self.running)])
        own_s = late * self._expected_s(cell)
        others_s = sum(running.left_s for running in self.running)
        idle_s = 0.0
        if self.side_by_side > 1:  # alone on the device a start is part of what a cell takes
            busy_s = sum(running.left_s for running in self.running if running.is_past_start)
            idle_s = max(0.0, START_S - busy_s)
        return idle_s + others_s + own_s <= self.deadline - time.monotonic()

    def _expected_s(self, cell: Cell) -> float:
        return expected_s(self.records, cell, self.expected)

    def _count_time(self) -> None:
        now_s = time.monotonic()
        for running in self.running:
            running.used_s += (now_s - self.counted_to) / len(self.running)
        self.counted_to = now_s

    def _start(self, cell: Cell, recipe: PretrainRecipe, tasks: dict[str, FinetuneRecipe]) -> None:
        output = Path(recipe.output)
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        file = output / "recipe.yaml"
        file.write_text(yaml.safe_dump(plain(recipe)), encoding="utf-8")
        command, variables = [*self.commands.pretrain, str(file)], GIVES_WAY
        if tasks:
            command, variables = [*self.commands.whole_cell, str(self._write_whole_cell(output, tasks))], {}
        with open(output / "log.txt", "wb") as log:
            # Compilers of cells side by side share the cores; a bar that moves every 0.1 s makes a long log.
            compilers = max(1, (os.cpu_count() or 1) // self.side_by_side)
            variables = {**variables, "TORCHINDUCTOR_COMPILE_THREADS": str(compilers), "TQDM_MININTERVAL": "10"}
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **variables}, start_new_session=True
            )
        expected = self._expected_s(cell)
        self._count_time()  # planning and starting are nothing that it takes
        self.running.append(_Running(cell, process, self.counted_to, output, expected))

    def _write_whole_cell(self, output: Path, tasks: dict[str, FinetuneRecipe]) -> Path:
        study = self.records.plan.study
        cell = WholeCell(
            output=str(output),
            tasks={task: plain(recipe) for task, recipe in tasks.items()},
            seeds=tuple(study.finetune_seeds),
            side_by_side=max(1, min(FINETUNINGS_AT_ONCE, os.cpu_count() or 1) // self.side_by_side),
            data=str(self.task_data) if self.task_data else None,
            robust={task: list(robust_arguments(study.robust, task)) for task in tasks} if study.robust else {},
        )
        fields = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(cell).items()}
        file = output / "cell.yaml"
        file.write_text(yaml.safe_dump(fields, sort_keys=False), encoding="utf-8")
        return file

    def _collect(self) -> None:
        for ended in [running for running in self.running if running.process.poll() is not None]:
            self.running.remove(ended)
            self.ended.append(ended.cell)
            seconds = time.monotonic() - ended.began
            name, run = self._name(ended.cell), RunFolder(ended.output)
            self.records.keep(ended.cell, ended.output)
            if ended.process.returncode:
                with suppress(ProcessLookupError):
                    os.killpg(ended.process.pid, signal.SIGKILL)  # children outlive a parent that was killed
                self.failed.add(ended.cell)
                self.say(f"{name}: failed after {seconds:.0f} s\n{last_words(ended.output / 'log.txt')}")
            else:
                if self.records.plan.goes_on_to_tasks(ended.cell):
                    self.records.keep_tasks(ended.cell, ended.output)
                self.say(f"{name}: {seconds:.0f} s, held-out loss {run.info()['eval_loss']:.4f}")
            note = {"cell": name, "ended": now(), "seconds": round(seconds, 1), "device_s": round(ended.used_s, 1)}
            note |= {"side_by_side": self.side_by_side}
            stages = read_json(ended.output / SECONDS) or {}
            self.records.note(**note, **({"stages": stages} if stages else {}), exit_code=ended.process.returncode)
            if not self.keep_models:
                for folder in _LET_GO:
                    shutil.rmtree(ended.output / folder, ignore_errors=True)
            self._save()

    def _save(self) -> None:
        self.records.write_study()
        if self.archive is not None:
            self.records.pack(self.archive, self.ended)

    def _name(self, cell: Cell) -> str:
        return self.records.plan.name(cell)
