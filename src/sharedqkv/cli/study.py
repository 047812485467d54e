"""From a YAML file to a report: `sharedqkv study quick` pre-trains, fine-tunes, tries and compares, and writes a page.

STUDY is the name of a shipped study or the path of a YAML file. Finished cells are reused when it is started again;
stopped at any moment, the same command goes on.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sharedqkv.study.shipped import SHIPPED, shipped_studies

if TYPE_CHECKING:
    from sharedqkv.study.definition import Study
    from sharedqkv.study.execute import Event
    from sharedqkv.study.run import StudyOutcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", metavar="STUDY", help=f"a YAML file, or one of: {', '.join(shipped_studies())}")
    parser.add_argument("--output", help="the study's folder (default: runs/NAME)")
    parser.add_argument(
        "--jobs", type=int, help="cells at once (default: one a GPU; without GPUs one for every `threads` cores)"
    )
    parser.add_argument("--dry-run", action="store_true", help="list what would run and how long it may take")


def run(options: argparse.Namespace) -> int:
    from sharedqkv.study.execute import check_gpus, visible_gpus
    from sharedqkv.study.plan import load_study
    from sharedqkv.study.run import default_jobs
    from sharedqkv.training.pretrain import quiet_transformers

    study = load_study(options.study)
    output = options.output or _default_output(options.study, study)
    if options.jobs is not None and options.jobs < 1:
        raise ValueError(f"--jobs {options.jobs}: expected at least 1")
    jobs = options.jobs or default_jobs(study)
    if 0 < len(visible_gpus()) < jobs:
        raise ValueError(f"--jobs {jobs}: a cell takes a GPU at least, and there are {len(visible_gpus())}")
    check_gpus(study)
    if options.dry_run:
        return _dry_run(study, Path(output), jobs)
    quiet_transformers()
    try:
        outcome = _run_with_progress(study, output, jobs)
    except KeyboardInterrupt:
        print(f"Finished cells are kept in {output}: the same command goes on from there.", file=sys.stderr)
        raise
    for cell, error in outcome.failed.items():
        log = Path(output) / "logs" / f"{cell}.log"
        print(f"failed: {cell}: {error}{f' (log: {log})' if log.exists() else ''}", file=sys.stderr)
    left_out = f", {outcome.left_out} left out that need those" if outcome.left_out else ""
    print(f"{outcome.ran} cells run, {outcome.reused} finished before, {len(outcome.failed)} failed{left_out}")
    print(f"The report lies in {outcome.report}")
    return 1 if outcome.failed else 0


def _default_output(given: str, study: "Study") -> str:
    shipped = SHIPPED / f"{study.name}.yaml"
    if given != study.name and shipped.is_file() and not shipped.samefile(given):
        raise ValueError(
            f"{given}: runs/{study.name} belongs to the shipped study of that name: rename the file or give --output"
        )
    return f"runs/{study.name}"


def _run_with_progress(study: "Study", output: str, jobs: int) -> "StudyOutcome":
    from sharedqkv.study.cells import cells_of, is_finished
    from sharedqkv.study.run import run_study

    cells = cells_of(study)
    pending = [cell for cell in cells if not is_finished(cell, study, Path(output))]
    console = Console(file=sys.stderr)  # kept, since cells in this process have their stderr redirected
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console.print(f"{study.name}: {len(pending)} of {len(cells)} cells to run, in {output}", highlight=False)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(study.name, total=len(cells), completed=len(cells) - len(pending))
        running: list[str] = []
        done = len(cells) - len(pending)

        def show(event: "Event") -> None:
            nonlocal done
            name = event.cell.name
            if event.state == "started":
                running.append(name)
            else:
                done += 1
                if name in running:
                    running.remove(name)
                error = f": {event.error}" if event.error else ""
                if event.state != "left out":
                    line = f"{done}/{len(cells)} {name} {event.state} in {event.seconds:.0f} s{error}"
                    progress.console.print(line, highlight=False, markup=False)
                progress.advance(bar)
            progress.update(bar, description=", ".join(running) or study.name)

        return run_study(study, output, jobs, show)


def _dry_run(study: "Study", folder: Path, jobs: int) -> int:
    from sharedqkv.study.cells import cells_of, is_finished
    from sharedqkv.study.estimate import Estimator

    total = 0.0
    pending = unknown = 0
    estimator = Estimator(study, folder)
    for cell in cells_of(study):
        if is_finished(cell, study, folder):
            print(f"{cell.name}: finished")
            continue
        guess = estimator.guess(cell)
        places = study.file.gpus_per_run if cell.stage == "pretrain" else 1
        total += places * (guess.seconds or 0.0)
        unknown += guess.seconds is None
        pending += 1
        time = f"time unknown: {guess.why}" if guess.seconds is None else f"about {_duration(guess.seconds)}"
        print(f"{cell.name}: {time}")
    more = f", and {unknown} of unknown time" if unknown else ""
    print(f"{pending} cells to run, about {_duration(total / jobs)} with {jobs} at once on this machine{more}.")
    print("A rough guess: by cells with the same settings that were run on it, but for variant and seed, or by FLOPs.")
    return 0


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.1f} days"
