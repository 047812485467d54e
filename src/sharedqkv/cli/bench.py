"""Time models side by side: a training step and a forward pass, with memory, energy and how near the device's limit.

Entrants are named `variant[:backend,key=value...][@layers]`: standard  shared:fused  shared:bias=true  standard:sdpa@10
shared:fused,bias=true. One that names no backend runs on each of --backends. All are compared with the first, take
turns round by round, and those that should compute the same must do so before any speed is printed. docs/bench.md says
what is timed.
"""

import argparse
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from sharedqkv.accounting.bench.settings import KINDS, PEERS, Settings
from sharedqkv.cli.dataclass_arguments import add_dataclass_arguments, dataclass_from

UNSTEADY = 0.1
FEW_ROUNDS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    variants, backends = ["standard", "shared"], ["sdpa"]
    parser.add_argument(
        "--variants", nargs="*", default=variants, metavar="ENTRANT", help="who runs (default: standard shared)"
    )
    parser.add_argument("--backends", nargs="+", default=backends, help="for entrants that name none (default: sdpa)")
    parser.add_argument("--peers", nargs="+", default=[], choices=PEERS, help="models of Transformers beside them")
    parser.add_argument("--passes", nargs="+", default=list(KINDS), choices=KINDS, help="what is timed (default: both)")
    add_dataclass_arguments(parser, Settings)
    parser.add_argument("--output", type=Path, help="folder for record.json, results.csv and the plot")


def check(options: argparse.Namespace) -> None:
    dataclass_from(options, Settings)


def run(options: argparse.Namespace) -> int:
    from sharedqkv.accounting.bench.entrants import choose_entrants
    from sharedqkv.accounting.bench.measure import measure
    from sharedqkv.accounting.bench.record import record_of, write_record
    from sharedqkv.training.pretrain import quiet_transformers
    from sharedqkv.training.run_folder import environment, now

    quiet_transformers()
    settings = dataclass_from(options, Settings)
    entrants = choose_entrants(options.variants, options.backends, options.peers, settings)
    if options.output is not None:
        _check_output(options.output)
    for entrant in entrants:
        _say(
            f"{entrant.name}: {entrant.num_parameters():,} parameters"
            + (f"; {entrant.remark}" if entrant.remark else "")
        )
    measured = measure(entrants, list(dict.fromkeys(options.passes)), settings, _say)
    record = {
        **record_of(measured, entrants, settings),
        "date": now(),
        "command": ["sharedqkv", *sys.argv[1:]],
        "environment": environment(),
    }
    if not any(found["results"] for found in record["passes"].values()):
        raise KeyboardInterrupt  # before a single round was whole
    _print(record)
    if options.output is not None:
        write_record(options.output, record)
        print(f"The record lies in {options.output}: record.json, results.csv, bench.png and bench.svg")
    if measured.interrupted:
        print("Interrupted: these are the rounds that were whole.", file=sys.stderr)
        return 130
    return 0


def _say(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def _check_output(folder: Path) -> None:
    if (folder / "record.json").exists():
        raise ValueError(f"{folder} holds a record, which stays as it is: choose another --output")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"{folder} cannot be written ({error}): choose another --output") from error


def _print(record: dict[str, Any]) -> None:
    from sharedqkv.accounting.bench.record import TITLES

    peaks = record["peaks"]
    for kind, found in record["passes"].items():
        if found["results"]:
            rounds = min(len(seconds) for seconds in found["seconds_of_rounds"].values())
            _show(_times(f"{TITLES[kind]}, {rounds} rounds", found["results"], record["entrants"]))
            _show(_roofline(found["results"], peaks))
            unsteady = [row["entrant"] for row in found["results"] if _spread(row) > UNSTEADY]
            if unsteady or rounds < FEW_ROUNDS:
                print(
                    f"{rounds} rounds, and the times of {', '.join(unsteady) or 'nobody'} vary by more than "
                    f"{UNSTEADY:.0%}: little can be read from them. Leave the machine alone and take more --rounds",
                    file=sys.stderr,
                )


def _spread(row: dict[str, Any]) -> float:
    return (row["upper_quartile_ms"] - row["lower_quartile_ms"]) / row["median_ms"]


def _times(title: str, rows: list[dict[str, Any]], entrants: dict[str, Any]) -> Table:
    table = _table(
        title, "parameters", "median ms", "quartiles", "k tokens/s", "speed", "95 %", "step GiB", "peak GiB", "joules"
    )
    for row in rows:
        interval = "–" if row["speed_low"] is None else f"{row['speed_low']:.3f}–{row['speed_high']:.3f}"
        table.add_row(
            row["entrant"],
            f"{entrants[row['entrant']]['parameters']:,}",
            f"{row['median_ms']:.2f}",
            f"{row['lower_quartile_ms']:.2f}–{row['upper_quartile_ms']:.2f}",
            f"{row['tokens_per_s'] / 1e3:,.1f}",
            f"{row['speed']:.3f}×",
            interval,
            _or_dash(row["step_memory_bytes"], 2**30),
            _or_dash(row["peak_memory_bytes"], 2**30),
            _or_dash(row["joules_per_step"], 1),
        )
    return table


def _roofline(rows: list[dict[str, Any]], peaks: dict[str, float]) -> Table:
    title = (
        f"floor at {peaks['flops_per_s'] / 1e12:,.2f} TFLOP/s and {peaks['bytes_per_s'] / 1e9:,.1f} GB/s, as measured"
    )
    table = _table(title, "GFLOP", "least GB", "ms by FLOPs", "ms by bytes", "median ms", "floor / median")
    for row in rows:
        figures = (row["flops"] / 1e9, row["least_bytes"] / 1e9)
        table.add_row(
            row["entrant"],
            *(f"{figure:,.2f}" for figure in figures),
            *(f"{row[name]:.2f}" for name in ("flops_floor_ms", "bytes_floor_ms", "median_ms")),
            f"{row['share_of_floor']:.1%}",
        )
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title)
    table.add_column("entrant")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _or_dash(value: float | None, unit: float) -> str:
    return "–" if value is None else f"{value / unit:.2f}"


def _show(table: Table) -> None:
    # Lines that wrap in a narrow terminal are better than figures cut off.
    needed = Console(width=1000).measure(table).maximum
    Console(width=max(Console().width, needed)).print(table)
