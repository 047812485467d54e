"""What is missing from a study, where it ran, and how to run it again."""

import shlex
from collections import Counter

from sharedqkv.evidence.report.collect import Study, commit_of
from sharedqkv.evidence.report.document import Block, Cell, Code, Details, Paragraph, Section, Table
from sharedqkv.evidence.report.words import counted


def state_of(study: Study) -> list[Block]:
    """What a reader must know first of a study that did not end well, or has not ended."""
    states = [cell["state"] for cell in study.info["cells"].values()]
    failed = {name: cell for name, cell in study.info["cells"].items() if cell["state"] == "failed"}
    done = f"{states.count('done')} of {len(states)} cells are done"
    blocks: list[Block] = []
    if study.info["state"] == "running":
        blocks.append(Paragraph(f"This study is not finished: {done}. The report shows what is there.", kind="missing"))
    elif states.count("done") < len(states):
        blocks.append(Paragraph(f"Parts of this study are missing: {done}.", kind="missing"))
    if failed:
        rows = [[Cell(name), Cell(study.without_path(cell.get("error") or "–"))] for name, cell in failed.items()]
        blocks.append(Table("failed", "What failed", ("cell", "error"), rows, prose=True))
    blocks += [Paragraph(f"{what} cannot be read: {why}", kind="missing") for what, why in study.problems.items()]
    return blocks


def environment_section(study: Study) -> Section:
    environment = study.info.get("environment")
    if not environment:
        missing = Paragraph("study.json does not say where it ran.", kind="missing")
        return Section("environment", "Environment", [missing])
    rows = [
        ("Python", environment["python"]),
        ("platform", environment["platform"]),
        ("devices", ", ".join(environment["devices"])),
        ("CPU cores", str(environment["cpu_count"])),
        ("commit", _commits(study) or commit_of(environment) or "not known"),
        *environment["packages"].items(),
    ]
    table = Table(
        name="environment",
        caption="Where the study ran, and with which versions",
        columns=("what", "version or name"),
        rows=[[Cell(name), Cell(value)] for name, value in rows],
        prose=True,
    )
    return Section("environment", "Environment", [table])


def _commits(study: Study) -> str:
    """Of the pre-training runs, where there are several: a study may be run over days."""
    found = Counter(run.commit for runs in study.pretraining.values() for run in runs)
    if len(found) < 2:
        return ""
    return ", ".join(
        f"{commit or 'not known'} ({counted(number, 'pre-training run')})" for commit, number in found.items()
    )


def reproduction_section(study: Study) -> Section:
    info = study.info
    blocks: list[Block] = []
    if info["command"]:
        blocks += [
            Paragraph("The study was run with this command; started again, it goes on from what is finished."),
            Code(shlex.join(info["command"])),
        ]
    blocks += [
        Paragraph("This report alone is made again from the study's folder:"),
        Code("sharedqkv report STUDY_FOLDER"),
    ]
    if info["study_yaml"]:
        blocks.append(Details("The study file", [Code(info["study_yaml"].rstrip("\n"))]))
    if info["started"]:
        ended = f", ended {info['ended']}" if info["ended"] else ""
        blocks.append(Paragraph(f"Started {info['started']}{ended}.", timed=True))
    blocks.append(
        Paragraph(
            "Beside this page: report.md, the same in Markdown; figures/, each as SVG, PNG and its data as CSV; "
            "tables/ as CSV with unrounded numbers. study.json holds every setting and every cell.",
            kind="note",
        )
    )
    return Section("reproduction", "How to reproduce", blocks)
