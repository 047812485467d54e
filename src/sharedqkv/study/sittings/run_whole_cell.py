"""A cell from pre-training to robustness in one go: `python -m sharedqkv.study.sittings.run_whole_cell CELL.yaml`.

Every stage is the command of its name. A small model leaves a GPU idle most of the time when it is fine-tuned or tried,
so that tasks and seeds go side by side; fine-tunings have a folder each and are put together afterwards.
"""

import gc
import importlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sharedqkv import schema
from sharedqkv.robustness.tried import pack_trials
from sharedqkv.study.sittings.whole_cell import CONSOLE, FINETUNED, GIVES_WAY, SECONDS, WholeCell, last_words, plain
from sharedqkv.tasks.cells import Cell, compress_predictions, kept_cells, write_json
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.tasks.summary import summary
from sharedqkv.training.run_folder import RunFolder, now


@dataclass(frozen=True)
class _Part:
    """One task with the seeds that are trained together."""

    task: str
    seeds: tuple[int, ...]
    recipe: FinetuneRecipe

    def __str__(self) -> str:
        return f"{self.task} with seed {', '.join(map(str, self.seeds))}"


def run_whole_cell(cell: WholeCell, console: str = CONSOLE) -> None:
    output = Path(cell.output)
    seconds: dict[str, float] = {}

    @contextmanager
    def timed(stage: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        seconds[stage] = round(time.monotonic() - began, 1)
        write_json(output / SECONDS, seconds)

    with _Processes(cell, console) as processes:
        with timed("pretrain"):
            pretrain = [sys.executable, "-m", console, "pretrain", str(output / "recipe.yaml")]
            subprocess.run(pretrain, check=True, env={**os.environ, **GIVES_WAY})
        with timed("finetune"):
            processes.finetune()
        if cell.robust:
            with timed("robust"):
                processes.robust()
    with timed("compress"):
        _compress(output / FINETUNED)


class _Processes:
    """They give one command after another: to start a process takes longer than to train on a small task."""

    def __init__(self, cell: WholeCell, console: str):
        self.cell = cell
        self.console = console
        self.folder = Path(cell.output) / "parts"
        self.pool = ProcessPoolExecutor(cell.side_by_side, multiprocessing.get_context("spawn"), initializer=_load)
        self.running: dict[Future[int], _Part] = {}
        self.data = ["--data", cell.data] if cell.data else []

    def __enter__(self) -> "_Processes":
        for _ in range(self.cell.side_by_side):
            self.pool.submit(int)  # a job for each, so that they start and load while the model is pre-trained
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is not None:
            for process in list(self.pool._processes.values()):  # public from Python 3.14 on: `kill_workers`
                process.kill()
        self.pool.shutdown(cancel_futures=True)

    def finetune(self) -> None:
        recipes = {task: schema.build(FinetuneRecipe, fields, task) for task, fields in self.cell.tasks.items()}
        # Those first whose other seeds wait for a search.
        for task, recipe in sorted(recipes.items(), key=lambda pair: not self._waits_for_search(pair[1])):
            self._start_all(task, self.cell.seeds[: recipe.seeds_at_once] if recipe.search else self.cell.seeds, recipe)
        ended: list[_Part] = []
        while self.running:
            for future in wait(self.running, return_when=FIRST_COMPLETED).done:
                part = self.running.pop(future)
                self._end(part, _code(future, [part, *self.running.values()]))
                ended.append(part)
        self._put_together(ended)

    def robust(self) -> None:
        run = Path(self.cell.output, FINETUNED)
        logs = {task: run.with_name(f"robust-{task}.txt") for task in self.cell.robust}
        given = {}
        for task, arguments in self.cell.robust.items():
            command = ["robust", str(run), "--tasks", task, *arguments, *self.data]
            given[task] = self.pool.submit(_give, self.console, command, logs[task])
        for task, future in given.items():
            if code := _code(future, list(given)):
                raise OSError(f"trying the models of {task} ended with {code}:\n{last_words(logs[task])}")

    def _waits_for_search(self, recipe: FinetuneRecipe) -> bool:
        return bool(recipe.search) and recipe.seeds_at_once < len(self.cell.seeds)

    def _output(self, part: _Part) -> Path:
        return self.folder / f"{part.task}-{part.seeds[0]}"

    def _start_all(self, task: str, seeds: tuple[int, ...], recipe: FinetuneRecipe) -> None:
        for first in range(0, len(seeds), recipe.seeds_at_once):
            self._start(_Part(task, seeds[first : first + recipe.seeds_at_once], recipe))

    def _start(self, part: _Part) -> None:
        output = self._output(part)
        output.mkdir(parents=True)
        recipe = output / "recipe.yaml"
        recipe.write_text(yaml.safe_dump(plain(part.recipe)), encoding="utf-8")
        seeds = "".join(f"{seed}," for seed in part.seeds)
        arguments = ["finetune", "--model", self.cell.output, "--tasks", part.task, "--seeds", seeds]
        arguments += ["--recipe", str(recipe), "--output", str(output), *self.data]
        arguments += ["--keep-models"] if self.cell.robust else []
        self.running[self.pool.submit(_give, self.console, arguments, output / "log.txt")] = part

    def _end(self, part: _Part, code: int) -> None:
        if code:
            raise OSError(f"fine-tuning on {part} ended with {code}:\n{last_words(self._output(part) / 'log.txt')}")
        if part.recipe.search:
            record = Cell(self._output(part), part.task, part.seeds[0]).record()
            assert record is not None
            found = schema.build(FinetuneRecipe, record["recipe"], part.task)
            self._start_all(part.task, self.cell.seeds[len(part.seeds) :], found)

    def _put_together(self, parts: Sequence[_Part]) -> None:
        """One run folder, as if a single command had made it."""
        whole = RunFolder(Path(self.cell.output) / FINETUNED)
        infos = []
        for part in sorted(parts, key=lambda part: (list(self.cell.tasks).index(part.task), part.seeds)):
            made = self._output(part)
            infos.append(RunFolder(made).info())
            for name in ("cells", "predictions", "search", "models"):
                _move_into(made / name, whole.path / name)
        records = [record for cell in kept_cells(whole.path) if (record := cell.record()) is not None]
        sittings = [sitting for info in infos for sitting in info["sittings"]]
        whole.write_info({**infos[0], "sittings": sittings, "scores": summary(records), "ended": now()})
        shutil.rmtree(self.folder)


def _compress(run: Path) -> None:
    for file in sorted((run / "predictions").rglob("*.jsonl")):
        compress_predictions(file)
    pack_trials(run)


def _load() -> None:
    import torch

    import sharedqkv.tasks.finetune  # noqa: F401 - what a command would begin with

    torch.set_num_threads(1)  # there are other processes


def _give(console: str, arguments: list[str], log: Path) -> int:
    """Give a command in this process, as in one of its own."""
    sys.argv = ["sharedqkv", *arguments]
    with open(log, "w", encoding="utf-8") as file, redirect_stdout(file), redirect_stderr(file):
        try:
            return importlib.import_module(console).main(arguments)
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code)
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:
            traceback.print_exc()
            return 1
        finally:
            _give_memory_back()


def _give_memory_back() -> None:
    """What torch would keep of the GPU for the next command of this process, while others want it."""
    import torch

    gc.collect()  # trainers and graphs end in cycles
    torch.cuda.empty_cache()


def _code(future: "Future[int]", at_work: Sequence[Any]) -> int:
    """What the command ended with."""
    try:
        return future.result()
    except BrokenProcessPool:
        told = "; ".join(map(str, at_work))
        raise OSError(f"a process died, perhaps for want of memory; begun or waiting were {told}") from None


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
