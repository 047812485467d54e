"""A whole study: what is to be done, doing it, and the report."""

import dataclasses
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from sharedqkv.evidence.report import build_report
from sharedqkv.study.cells import Cell, cells_of, is_finished, record_of
from sharedqkv.study.definition import Study
from sharedqkv.study.execute import Event, Listener, check_gpus, run_cells, visible_gpus
from sharedqkv.tasks.cells import read_json, write_json
from sharedqkv.training.run_folder import environment, now


@dataclass(frozen=True)
class StudyOutcome:
    report: Path
    failed: dict[str, str]
    """Cell → its error."""
    left_out: int
    """Cells not run, because one they need failed."""
    ran: int
    reused: int


def default_jobs(study: Study) -> int:
    """Cells at once: one a GPU, or as many as the cores carry. One over several GPUs leaves room for fewer."""
    return len(visible_gpus()) or max(1, min(8, (os.cpu_count() or 1) // study.file.threads))


def run_study(study: Study, output: str, jobs: int, on_event: Listener = lambda event: None) -> StudyOutcome:
    check_gpus(study)
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            return _run(study, folder, jobs, on_event)
    except Timeout:
        raise OSError(f"{folder}: another process is running this study; wait for it or stop it") from None


def _run(study: Study, folder: Path, jobs: int, on_event: Listener) -> StudyOutcome:
    cells = cells_of(study)
    pending = [cell for cell in cells if not is_finished(cell, study, folder)]
    book = _Book(study, folder, cells, pending, _pretrained_side_by_side(pending, jobs))
    book.write("running")

    def listen(event: Event) -> None:
        book.note(event)
        on_event(event)

    try:
        run_cells(pending, study, folder, jobs, listen)
    except BaseException:  # Ctrl-C, too
        book.write("stopped")
        raise
    book.write("failed" if book.failed else "done", ended=now())
    report = build_report(folder)
    ran = len(pending) - len(book.failed) - book.left_out
    return StudyOutcome(report, book.failed, book.left_out, ran, len(cells) - len(pending))


def _pretrained_side_by_side(pending: Sequence[Cell], jobs: int) -> int:
    """At most: every cell has a GPU to itself; where there is none, all share the CPU."""
    to_pretrain = any(cell.stage == "pretrain" for cell in pending)
    return min(jobs, len(pending)) if to_pretrain and not visible_gpus() else 1


class _Book:
    """Keeps study.json, from which the report is made."""

    def __init__(self, study: Study, folder: Path, cells: Sequence[Cell], pending: Sequence[Cell], side_by_side: int):
        self.study = study
        self.folder = folder
        self.failed: dict[str, str] = {}
        self.left_out = 0
        self.cells = {
            cell.name: {"state": "pending", "seconds": None, "error": None}
            if cell in pending
            else {"state": "done", "seconds": record_of(cell, folder).get("seconds"), "error": None}
            for cell in cells
        }
        before = read_json(folder / "study.json") or {}
        self.started = before.get("started", now())
        self.side_by_side = max(side_by_side, before.get("side_by_side", 1))

    def note(self, event: Event) -> None:
        if event.state == "started":
            return
        if event.state == "left out":
            self.left_out += 1
        elif event.error is not None:
            self.failed[event.cell.name] = event.error
        state = "failed" if event.error is not None else "done"
        left_out = event.state == "left out"
        outcome = {"state": state, "seconds": event.seconds, "error": event.error, "left_out": left_out}
        self.cells[event.cell.name] = outcome
        self.write("running")

    def write(self, state: str, **more: Any) -> None:
        study, plan = self.study, self.study.robust
        write_json(
            self.folder / "study.json",
            {
                "name": study.name,
                "title": study.file.title,
                "description": study.file.description,
                "state": state,
                "study": dataclasses.asdict(study.file),
                "study_yaml": study.text,
                "command": ["sharedqkv", *sys.argv[1:]],
                "environment": environment(),
                "started": self.started,
                "ended": None,
                "baseline": study.entrants[0].name,
                "entrants": [dataclasses.asdict(entrant) for entrant in study.entrants],
                "tasks": list(study.tasks),
                "noises": list(plan.noises) if plan else [],
                "severities": list(plan.severities) if plan else [],
                "noise_seeds": list(plan.seeds) if plan else [],
                "domains": list(plan.domains) if plan else [],
                "cells": self.cells,
                "side_by_side": self.side_by_side,
                **more,
            },
        )
