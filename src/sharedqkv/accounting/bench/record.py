"""What a benchmark leaves behind: `record.json`, a table as CSV, and a plot."""

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sharedqkv.accounting.bench.entrants import Entrant
from sharedqkv.accounting.bench.measure import Measured, PassMeasured
from sharedqkv.accounting.bench.settings import Kind, Settings

TITLES: dict[Kind, str] = {"train": "training step", "forward": "forward pass of the encoder"}


def rows_of(measured: PassMeasured, settings: Settings) -> list[dict[str, Any]]:
    """One flat row an entrant, as in the CSV; None where something could not be measured."""
    rows = []
    for name, summary in measured.summaries(settings.tokens).items():
        memory, watts, floor = measured.memory.get(name), measured.watts.get(name), measured.floors[name]
        low, high = summary.speed_interval or (None, None)
        rows.append(
            {
                "entrant": name,
                "median_ms": 1e3 * summary.median_s,
                "lower_quartile_ms": 1e3 * summary.quartiles_s[0],
                "upper_quartile_ms": 1e3 * summary.quartiles_s[1],
                "tokens_per_s": summary.tokens_per_s,
                "speed": summary.speed,
                "speed_low": low,
                "speed_high": high,
                "step_memory_bytes": memory and memory["step"],
                "peak_memory_bytes": memory and memory["peak"],
                "joules_per_step": watts and watts * summary.median_s,
                "flops": floor.flops,
                "least_bytes": floor.moved_bytes,
                "flops_floor_ms": 1e3 * floor.flops_s,
                "bytes_floor_ms": 1e3 * floor.bytes_s,
                "floor_ms": 1e3 * floor.seconds,
                "share_of_floor": floor.seconds / summary.median_s,
            }
        )
    return rows


def record_of(measured: Measured, entrants: Sequence[Entrant], settings: Settings) -> dict[str, Any]:
    return {
        "benchmark": "bench",
        "state": "interrupted" if measured.interrupted else "done",
        "config": asdict(settings),
        "device": measured.device,
        "threads": measured.threads,
        "peaks": measured.peaks and asdict(measured.peaks),
        "entrants": {
            entrant.name: {
                "model": entrant.model_class.__name__,
                "backend": entrant.backend,
                "layers": entrant.config.num_hidden_layers,
                "parameters": entrant.num_parameters(),
                "remark": entrant.remark,
            }
            for entrant in entrants
        },
        "passes": {
            kind: {
                "results": rows_of(found, settings),
                "seconds_of_rounds": found.seconds,
                "equality": [asdict(agreement) for agreement in found.agreements],
            }
            for kind, found in measured.passes.items()
        },
    }


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """`record` is what `record_of` gives, and what the caller adds to it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "record.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    rows = [{"pass": kind, **row} for kind, found in record["passes"].items() for row in found["results"]]
    with open(folder / "results.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    _draw(folder, record)


def _draw(folder: Path, record: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    passes = {kind: found["results"] for kind, found in record["passes"].items() if found["results"]}
    height = 1.6 + 0.45 * len(record["entrants"])
    figure, grid = pyplot.subplots(
        1, len(passes), figsize=(6.4 * len(passes), height), layout="constrained", squeeze=False
    )
    for axes, (kind, rows) in zip(grid[0], passes.items(), strict=True):
        _draw_pass(axes, rows)
        axes.set_title(TITLES[kind])
    figure.suptitle(_caption(record), fontsize="medium")
    for suffix in ("png", "svg"):
        figure.savefig(folder / f"bench.{suffix}", dpi=150)
    pyplot.close(figure)


def _draw_pass(axes: Any, rows: list[dict[str, Any]]) -> None:
    """Medians as bars, quartiles as whiskers, the floor as a mark, the speed against the first at the end."""
    names = [_label(row) for row in rows]
    medians = [row["median_ms"] for row in rows]
    spread = [
        [row["median_ms"] - row["lower_quartile_ms"] for row in rows],
        [row["upper_quartile_ms"] - row["median_ms"] for row in rows],
    ]
    axes.barh(names, medians, xerr=spread, height=0.6, color="#7c9cbf", ecolor="#333333", capsize=3)
    axes.scatter([row["floor_ms"] for row in rows], names, marker="|", s=220, color="#b03a2e", zorder=3)
    for row in rows:
        axes.annotate(
            f"{row['median_ms']:.4g} ms, {row['speed']:.2f}×",
            (row["upper_quartile_ms"], _label(row)),
            (6, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
        )
    axes.set_xlim(0, 1.5 * max(row["upper_quartile_ms"] for row in rows))
    axes.invert_yaxis()
    axes.set_xlabel("ms: median, quartiles, and in red the floor")
    axes.grid(axis="x", alpha=0.3)


def _label(row: dict[str, Any]) -> str:
    return row["entrant"].replace(",", ",\n")


def _caption(record: dict[str, Any]) -> str:
    config = record["config"]
    words = [config["size"], f"{config['rows']} rows × {config['length']} tokens", "bf16" if config["bf16"] else "fp32"]
    words += [f"{config['layers']} layers"] if config["layers"] else []
    words += ["compiled"] if config["compile"] else []
    words += [f"dropout {config['dropout']:g}"] if config["dropout"] else []
    return f"{record['device']}: {', '.join(words)}"
