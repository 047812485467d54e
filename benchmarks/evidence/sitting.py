"""Run as many cells of a plan as fit into the time, and keep their records.

    sharedqkv prepare --source TEXT/wikipedia=2 --source TEXT/books=1 --validation-source TEXT/wikipedia \
        --validation-source TEXT/books --tokenizer TEXT/vocab.txt --output runs/evidence/corpus
    python benchmarks/evidence/sitting.py benchmarks/evidence/medium_sittings.yaml --corpus runs/evidence/corpus \
        --work runs/evidence --records results/HARDWARE/DATE-evidence-medium --seconds 540 --archive OUT/records.tar.xz

The same command goes on where the records end; without `--records` these are those that the plan names. `--list`
shows all cells in their order, with what each may take of the device; `sharedqkv report RECORDS` makes tables of them.
"""

import argparse
import signal
import sys
from pathlib import Path

from sharedqkv.study.sittings import Records, Sitting, expected_s, load_plan


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument(
        "--records", type=Path, help="folder of what was run, in earlier sittings too (default: the plan's)"
    )
    parser.add_argument("--list", action="store_true", help="show the cells and run nothing")
    parser.add_argument("--corpus", type=Path, help="folder that `sharedqkv prepare` made")
    parser.add_argument("--task-data", type=Path, help="folder with the tasks and domains/ (default: the hub)")
    parser.add_argument("--work", type=Path, default=Path("runs/evidence"), help="folder for runs while they last")
    parser.add_argument("--seconds", type=float, help="time of this sitting")
    parser.add_argument("--side-by-side", type=int, default=1, help="cells at once on the device (default: 1)")
    parser.add_argument(
        "--expect",
        type=float,
        help="seconds of the device for a whole run (default: the plan's, or what those before took)",
    )
    parser.add_argument("--variants", nargs="+", metavar="VARIANT", help="run cells of these only (default: all)")
    parser.add_argument("--archive", type=Path, help="tar.xz of what came to the records, rewritten after every cell")
    parser.add_argument("--keep-models", action="store_true", help="leave the models in the work folder")
    options = parser.parse_args()
    plan = load_plan(options.plan)
    folder = options.records or plan.records
    if folder is None:
        parser.error(f"{options.plan} names no records: give their folder with --records")
    records = Records(plan, folder)
    if options.list:
        show(records, options.expect)
        return 0
    if options.corpus is None or options.seconds is None:
        parser.error("--corpus and --seconds are needed to run anything")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the records are packed
    sitting = Sitting(
        records,
        options.corpus,
        options.work,
        options.seconds,
        options.side_by_side,
        options.archive,
        options.keep_models,
        options.task_data,
        options.expect,
        variants=tuple(options.variants) if options.variants else None,
        say=lambda text: print(text, flush=True),
    )
    sitting.run()
    return 1 if sitting.failed else 0


def show(records: Records, told_s: float | None) -> None:
    total, width = 0.0, max(len(records.plan.name(cell)) for cell in records.plan.cells)
    for number, cell in enumerate(records.plan.cells, 1):
        state = records.state(cell)
        seconds = 0.0 if state == "done" else expected_s(records, cell, told_s)
        total += seconds
        state = "not needed" if records.is_taken(cell) else state  # a check of the rate that was taken anyway
        print(f"{number:3} {records.plan.name(cell):{width}} {state:10} {seconds:5.0f} s, sum {total:6.0f} s")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
