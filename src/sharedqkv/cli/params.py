"""Count parameters and FLOPs of every variant, and what each saves against standard attention.

Models are named `variant[:key=value,...]`, where a key is an option of the variant or a configuration field:
shared  shared:bias=true  grouped:num_key_value_heads=2  standard:num_hidden_layers=10
"""

import argparse
import json
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--size", default="base", help="model size: tiny, mini, small, medium, base or large (default: base)"
    )
    parser.add_argument(
        "--variants",
        nargs="+",
        metavar="MODEL",
        help="models to count (default: all, and a shallower standard)",
    )
    parser.add_argument("--lengths", nargs="+", type=_length, help="sequence lengths (default: 128 512)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _length(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a length is a whole number from 1, not {text!r}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    from sharedqkv.accounting import default_specs, savings_report
    from sharedqkv.accounting.savings import DEFAULT_LENGTHS

    specs = options.variants or default_specs(options.size)
    report = savings_report(options.size, specs, options.lengths or DEFAULT_LENGTHS)
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        _print_table(report)
    return 0


def _print_table(report: dict[str, Any]) -> None:
    table = Table(box=box.SIMPLE_HEAD, title=f"{report['size']}; in brackets what is saved against standard")
    table.add_column("model")
    columns = [
        "q/k/v a layer",
        "with Wo",
        "whole model + MLM head",
        *(f"MFLOP/token at {n}" for n in report["lengths"]),
    ]
    for column in columns:
        table.add_column(column, justify="right")
    for model in report["models"]:
        counts, saving = model["parameters"], model["saving"]
        cells = [f"{counts[n]:,} ({saving[f'{n}_parameters']:.2%})" for n in ("qkv", "attention_block", "model")]
        for length in report["lengths"]:
            flops = model["flops_per_token"][length] / 1e6
            cells.append(f"{flops:,.1f} ({saving['flops_per_token'][length]:.2%})")
        table.add_row(model["spec"], *cells)
    # Lines that wrap in a narrow terminal are better than figures cut off.
    console = Console()
    needed = Console(width=1000).measure(table).maximum
    Console(width=max(console.width, needed)).print(table)
    console.print(f"FLOPs: {report['flops']}.")
    for claim in report["paper"]:
        console.print(f"\nThe paper: {claim['paper']}.")
        console.print(f"  It counts {claim['counts']} = {claim['measured']:.4%}; {claim['explanation']}")
