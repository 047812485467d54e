"""Say which of two fine-tuned models is better, by how much and how sure: `sharedqkv compare RUN_A RUN_B`.

With several pre-training seeds of each model: `sharedqkv compare --a RUN RUN … --b RUN RUN …`, one run a seed.
docs/statistics.md says what is tested.
"""

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharedqkv.evidence.comparison import Comparison
    from sharedqkv.evidence.finetuned import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "sharedqkv compare RUN_A RUN_B [options], or --a RUN ... --b RUN ..."
    parser.add_argument("runs", nargs="*", metavar="RUN", help="two runs of `sharedqkv finetune`")
    parser.add_argument("--a", nargs="+", metavar="RUN", help="runs of one model, one for each pre-training seed")
    parser.add_argument("--b", nargs="+", metavar="RUN", help="runs of the other")
    parser.add_argument("--unpaired", action="store_true", help="treat equal seeds as unrelated; decide before looking")
    parser.add_argument("--alpha", type=float, default=0.05, help="level of the tests (default: 0.05)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of words")


def check(options: argparse.Namespace) -> None:
    if options.runs and (options.a or options.b):
        raise ValueError("give two runs, or --a and --b, not both")
    if len(options.runs) != 2 and not (options.a and options.b):
        raise ValueError("give two runs, or the runs of both models: --a RUN ... --b RUN ...")


def run(options: argparse.Namespace) -> int:
    from sharedqkv.evidence.finetuned import compare_models, read_models

    runs_a, runs_b = ([run] for run in options.runs) if options.runs else (options.a, options.b)
    model_a, model_b = read_models(runs_a, runs_b)
    report = compare_models(model_a, model_b, paired=False if options.unpaired else None, alpha=options.alpha)
    if options.json:
        print(json.dumps(_plain(report), indent=2))
    else:
        _print(report)
    return 0


def _print(report: "Report") -> None:
    from sharedqkv.evidence.comparison import verdict

    if report.average is not None:
        print(f"{verdict(report.average)}\n")
    for comparison in report.tasks:
        print(verdict(comparison))
        if comparison.task in report.mcnemar:
            p_values = ", ".join(f"{test.p:.2g}" for test in report.mcnemar[comparison.task])
            print(f"  McNemar run by run, as a description only: p = {p_values}")
    if report.only_one_has:
        print(f"Left out, since not every run has it: {', '.join(report.only_one_has)}")


def _plain(report: "Report") -> dict[str, Any]:
    return {
        "average": None if report.average is None else _comparison(report.average),
        "tasks": [_comparison(comparison) for comparison in report.tasks],
        "mcnemar": {task: [dataclasses.asdict(test) for test in tests] for task, tests in report.mcnemar.items()},
        "left_out": report.only_one_has,
    }


def _comparison(comparison: "Comparison") -> dict[str, Any]:
    from sharedqkv.evidence.comparison import verdict

    return {**dataclasses.asdict(comparison), "called": comparison.called, "verdict": verdict(comparison)}
