"""Make the report of a study again, from its folder alone: `sharedqkv report STUDY_FOLDER`.

It holds index.html (open it in a browser), report.md, figures/ and tables/. What a study lacks, since it is still
running or parts of it failed, is told in its place.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", metavar="STUDY_FOLDER", type=Path, help="folder that `sharedqkv study` wrote")
    parser.add_argument("--output", type=Path, help="folder for the report (default: report/ in the study's folder)")


def run(options: argparse.Namespace) -> int:
    from sharedqkv.evidence.report import build_report

    print(f"The report lies in {build_report(options.study, options.output)}")
    return 0
