"""A submission to the GLUE benchmark: a zip of tab-separated predictions, one file a test set."""

import zipfile
from collections.abc import Iterable
from pathlib import Path

from sharedqkv.data.files import atomic_write
from sharedqkv.tasks.cells import has_predictions, predictions_file, read_predictions
from sharedqkv.tasks.glue import GLUE

_BEGINNING_OF_TIME = (1980, 1, 1, 0, 0, 0)
"""So that equal predictions make equal zips."""


def write_submission(run: Path, seed: int, tasks: Iterable[str]) -> tuple[Path, list[str]]:
    """The zip for one seed, and the names of the files that GLUE wants and these tasks do not give."""
    path = run / "submission" / f"{seed}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    chosen, missing = set(tasks), []
    with atomic_write(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for task in GLUE.values():
            for split in task.test:
                assert split.submitted_as is not None
                predictions = predictions_file(run, split, seed)
                if task.name not in chosen or not has_predictions(predictions):
                    missing.append(split.submitted_as)
                    continue
                records = sorted(read_predictions(predictions), key=lambda record: record["id"])
                lines = ["index\tprediction", *(f"{record['id']}\t{task.submitted(record)}" for record in records)]
                archive.writestr(zipfile.ZipInfo(split.submitted_as, _BEGINNING_OF_TIME), "\n".join(lines) + "\n")
    return path, missing
