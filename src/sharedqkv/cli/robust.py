"""Try fine-tuned models on noise and on other domains: `sharedqkv robust RUN ... --data FOLDER --output REPORT`.

RUN is a run of `sharedqkv finetune --keep-models`. Runs of the same variant are one model with several pre-training
seeds. Predictions are kept in the runs, so that the same command started again only does what is missing; the report
(tables, curves, verdicts) is written to --output, or left for later. With two models or more every other one is
compared with the first.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sharedqkv.robustness.conditions import parse_noises, parse_severities
from sharedqkv.robustness.domains import DOMAINS, parse_domains
from sharedqkv.robustness.noises import NOISES, SEVERITIES

if TYPE_CHECKING:
    from sharedqkv.robustness.grid import GridOutcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders of `sharedqkv finetune --keep-models`")
    parser.add_argument(
        "--noise", default="all", help=f"all, text, model, none, or a list of: {', '.join(NOISES)} (default: all)"
    )
    parser.add_argument("--severity", default=f"1-{SEVERITIES[-1]}", help="like 1,3,5 (default: 1-5)")
    parser.add_argument("--seeds", default="1", help="seeds of the noise, a count or a list (default: 1)")
    parser.add_argument(
        "--domains", default="none", help=f"all, none, or a list of: {', '.join(DOMAINS)} (default: none)"
    )
    parser.add_argument("--tasks", help="only these of the runs' tasks, like sst2,mnli")
    parser.add_argument("--data", help="folder with the tasks and domains/ (default: where the first run has its data)")
    parser.add_argument(
        "--examples", type=int, help="draw so many of a set; edited pairs are taken whole (default: all)"
    )
    parser.add_argument("--separate", action="store_true", help="every run is a model of its own")
    parser.add_argument("--alpha", type=float, default=0.05, help="level of the tests (default: 0.05)")
    parser.add_argument("--output", type=Path, help="folder for the report (default: none is made)")


def check(options: argparse.Namespace) -> None:
    if options.examples is not None and options.examples < 1:
        raise ValueError(f"--examples {options.examples}: expected at least 1")
    if not 0 < options.alpha < 1:
        raise ValueError(f"--alpha {options.alpha:g}: expected a number between 0 and 1")
    parse_noises(options.noise)
    parse_severities(options.severity)
    if options.domains != "none":
        parse_domains(options.domains)


def run(options: argparse.Namespace) -> int:
    from sharedqkv.evidence.finetuned import group_runs
    from sharedqkv.evidence.robustness import analyse, common_tasks
    from sharedqkv.evidence.robustness_report import headlines, write_report
    from sharedqkv.robustness.grid import Plan, run_grid
    from sharedqkv.tasks.finetune import parse_seeds
    from sharedqkv.training.pretrain import quiet_transformers
    from sharedqkv.training.run_folder import RunFolder

    models = group_runs(options.runs, options.separate)
    wanted = [name.strip() for name in (options.tasks or "").split(",") if name.strip()]
    tasks, _ = common_tasks(models, wanted)
    plan = Plan(
        noises=parse_noises(options.noise),
        severities=parse_severities(options.severity),
        seeds=parse_seeds(options.seeds),
        domains=[] if options.domains == "none" else parse_domains(options.domains, tasks),
        tasks=tasks,
        limit=options.examples,
    )
    quiet_transformers()
    kept_at = RunFolder(options.runs[0]).info().get("data")
    data = options.data or (None if kept_at in (None, "hub") else kept_at)
    try:
        outcome = run_grid(options.runs, plan, data)
    except KeyboardInterrupt:
        print("Finished cells are kept in the runs: the same command goes on from there.", file=sys.stderr)
        raise
    if options.output is not None:
        analysis = analyse(models, plan, options.alpha, outcome.left_out | outcome.broken)
        report = write_report(analysis, options.output)
        for line in headlines(analysis):
            print(line.replace("**", ""))
    _print_outcome(outcome)
    if options.output is None:
        print("Predictions are kept in the runs: the same command with --output makes the report.")
    else:
        print(f"The report lies in {options.output}: {report.name}, tables as CSV, curves as PNG and SVG.")
    return 1 if outcome.broken else 0


def _print_outcome(outcome: "GridOutcome") -> None:
    print(f"{outcome.ran} cells run, {outcome.skipped} finished before")
    for name, reason in outcome.left_out.items():
        print(f"not tried: {name}: {reason}")
    for name, error in outcome.broken.items():
        print(f"broken: {name}: {error}", file=sys.stderr)
