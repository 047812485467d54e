"""From a study's folder to its report: `index.html`, `report.md`, `figures/` and `tables/`."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from sharedqkv.evidence.report.claims import claims_table
from sharedqkv.evidence.report.collect import read_study
from sharedqkv.evidence.report.document import Document, Paragraph, Record, Section, file_stem, records_of
from sharedqkv.evidence.report.figures import styles
from sharedqkv.evidence.report.markdown import markdown
from sharedqkv.evidence.report.measures import Measures, measure
from sharedqkv.evidence.report.page import page
from sharedqkv.evidence.report.sections.attention import attention_section
from sharedqkv.evidence.report.sections.costs import size_section, speed_section
from sharedqkv.evidence.report.sections.equal_time import equal_time_sections
from sharedqkv.evidence.report.sections.pretraining import pretraining_section
from sharedqkv.evidence.report.sections.price import price_section
from sharedqkv.evidence.report.sections.reproduction import environment_section, reproduction_section, state_of
from sharedqkv.evidence.report.sections.robustness import domains_section, noise_section
from sharedqkv.evidence.report.sections.tasks import tasks_section
from sharedqkv.evidence.report.words import summary


def build_report(study_folder: Path, output: Path | None = None) -> Path:
    """Returns the HTML file. Without an output the report lies in the study's folder."""
    document = build_document(measure(read_study(study_folder)))
    folder = output or study_folder / "report"
    _clear(folder)
    for figure in document.figures():
        stem = folder / "figures" / file_stem(figure)
        stem.with_suffix(".svg").write_text(figure.drawing.svg + "\n", encoding="utf-8")
        stem.with_suffix(".png").write_bytes(figure.drawing.png)
        _write_csv(stem.with_suffix(".csv"), figure.records)
    for table in document.tables():
        _write_csv(folder / "tables" / f"{file_stem(table)}.csv", records_of(table))
    (folder / "report.md").write_text(markdown(document), encoding="utf-8")
    index = folder / "index.html"
    index.write_text(page(document), encoding="utf-8")
    return index


def build_document(measures: Measures) -> Document:
    study = measures.study
    looks = styles([entrant.name for entrant in study.entrants])
    caution = (
        "A claim holds, or does not, when a test calls a difference; nor does it hold when the interval rules the "
        "claimed figure out and the seeds would suffice for a test. Otherwise it cannot be told. All verdicts are "
        "about this study's models and data, not about the paper's."
    )
    sections = [
        Section("summary", "Summary", [*state_of(study), *summary(measures)]),
        Section("claims", "The paper's claims", [claims_table(measures), Paragraph(caution, kind="note")]),
        tasks_section(measures, looks),
        pretraining_section(measures, looks),
        *equal_time_sections(measures),
        price_section(measures, looks),
        noise_section(measures, looks),
        domains_section(measures),
        size_section(measures),
        speed_section(measures),
        attention_section(measures),
        environment_section(study),
        reproduction_section(study),
    ]
    return Document(study.info["title"], study.info["description"], sections)


def _clear(folder: Path) -> None:
    """Make its folders, without what an earlier report left in them."""
    for name in ("figures", "tables"):
        try:
            (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(f"{folder} cannot be written ({error}): choose another --output") from error
        for suffix in ("svg", "png", "csv"):
            for file in (folder / name).glob(f"*.{suffix}"):
                file.unlink()


def _write_csv(path: Path, records: Sequence[Record]) -> None:
    names: Mapping[str, None] = dict.fromkeys(name for record in records for name in record)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(names), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
