"""Where the rows of a task come from: the hub, or a folder with Parquet, JSONL, GLUE's own TSV or SQuAD's own JSON.

Whatever the format, a row comes in the columns of the hub.
"""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sharedqkv.tasks.task import Row, Split

HUB_SQUAD = {"squad": "rajpurkar/squad", "squad_v2": "rajpurkar/squad_v2"}
HUB_GLUE = "nyu-mll/glue"
_BROKEN_SHARE = 0.01
"""GLUE's own files hold a few broken lines; more than this share of them is another kind of file."""


@dataclass(frozen=True)
class OfficialTsv:
    """How GLUE's download lays a task out: tab-separated, nothing quoted."""

    folder: str
    columns: dict[str, str] = field(default_factory=dict)
    """The file's name of a column → the hub's, where they differ."""
    headless: tuple[str, ...] = ()
    """Columns of train and dev where the files do not name them."""

    def file(self, split: str) -> str:
        return "diagnostic.tsv" if self.folder == "diagnostic" else f"{split.replace('validation', 'dev')}.tsv"


_PAIR = {"sentence1": "premise", "sentence2": "hypothesis"}
OFFICIAL_TSV = {
    "cola": OfficialTsv("CoLA", headless=("source", "label", "original_label", "sentence")),
    "sst2": OfficialTsv("SST-2"),
    "mrpc": OfficialTsv("MRPC", {"#1 String": "sentence1", "#2 String": "sentence2", "Quality": "label"}),
    "stsb": OfficialTsv("STS-B", {"score": "label"}),
    "qqp": OfficialTsv("QQP", {"is_duplicate": "label", "id": "index"}),
    "mnli": OfficialTsv("MNLI", {**_PAIR, "gold_label": "label"}),
    "qnli": OfficialTsv("QNLI"),
    "rte": OfficialTsv("RTE"),
    "wnli": OfficialTsv("WNLI"),
    "ax": OfficialTsv("diagnostic", _PAIR),
}
_OFFICIAL_SQUAD = {
    ("squad", "train"): "train-v1.1.json",
    ("squad", "validation"): "dev-v1.1.json",
    ("squad_v2", "train"): "train-v2.0.json",
    ("squad_v2", "validation"): "dev-v2.0.json",
}


def load_rows(data: Path | None, split: Split) -> tuple[list[Row], str]:
    """The rows of a split, and the name of where they are from. `data` is a folder, or None for the hub."""
    if data is None:
        if split.config in HUB_SQUAD:
            return rows_from_hub(HUB_SQUAD[split.config], None, split.name)
        if split.config not in OFFICIAL_TSV:
            raise ValueError(f"{split.config} is not on the hub: give the folder with its rows as --data")
        return rows_from_hub(HUB_GLUE, split.config, split.name)
    return rows_from_folders(data, _folders(data, split.config), split, _official_files(split))


def require_split(data: Path, split: Split) -> None:
    """An error unless the folder has files of the split; nothing is read."""
    _find_files(data, _folders(data, split.config), split, _official_files(split))


def rows_from_hub(repository: str, config: str | None, split: str, exported: bool = False) -> tuple[list[Row], str]:
    """`exported` reads the Parquet files that the hub made of a repository whose own loading script no longer runs."""
    try:
        import datasets
    except ImportError:
        raise OSError(
            "reading tasks from the hub needs `pip install datasets`; or give a local folder as --data"
        ) from None
    try:
        if exported:
            files = {split: f"{config}/{split}/*.parquet"}
            found = datasets.load_dataset(repository, revision="refs/convert/parquet", data_files=files, split=split)
        else:
            found = datasets.load_dataset(repository, config, split=split)
        rows = found.to_list()
    except Exception as error:  # `datasets` and the hub raise dozens of kinds
        wanted = f"{config}, split {split}," if config else f"split {split}"
        raise OSError(
            f"cannot get {wanted} of {repository} from the hub: {error}. "
            "Check the network, or give a local folder as --data"
        ) from error
    return rows, ", ".join(part for part in (repository, config, split) if part)


def rows_from_folders(
    data: Path, folders: Sequence[Path], split: Split, official: Sequence[str] = ()
) -> tuple[list[Row], str]:
    """From the first folder that has the split: as Parquet, JSONL or one of the `official` files."""
    files = _find_files(data, folders, split, official)
    rows = [row for file in files for row in _read(file, split)]
    return rows, ", ".join(map(str, files))


def _find_files(data: Path, folders: Sequence[Path], split: Split, official: Sequence[str]) -> list[Path]:
    single_files = [f"{split.name}.parquet", f"{split.name}.jsonl", *official]
    for folder in folders:
        parquet = sorted(folder.glob(f"{split.name}-*.parquet"))
        if parquet:
            return parquet
        for name in single_files:
            if (folder / name).is_file():
                return [folder / name]
    raise FileNotFoundError(
        f"--data {data}: no split {split.name} of {split.config}. Looked for {split.name}-*.parquet, "
        f"{', '.join(single_files)} in {', '.join(map(str, folders))}"
    )


def _folders(data: Path, config: str) -> list[Path]:
    if config in HUB_SQUAD:
        inner = "plain_text" if config == "squad" else config  # the hub's configuration
        return list(dict.fromkeys([data / config / inner, data / config, data / inner, data]))
    names = (config, OFFICIAL_TSV[config].folder) if config in OFFICIAL_TSV else (config,)
    return [base / name for base in (data, data / "glue") for name in names]


def _official_files(split: Split) -> list[str]:
    if split.config in OFFICIAL_TSV:
        return [OFFICIAL_TSV[split.config].file(split.name)]
    official = _OFFICIAL_SQUAD.get((split.config, split.name))
    return [official] if official else []


def _read(file: Path, split: Split) -> Iterator[Row]:
    try:
        if file.suffix == ".parquet":
            yield from _read_parquet(file)
        elif file.suffix == ".jsonl":
            yield from read_jsonl(file)
        elif file.suffix == ".tsv":
            yield from _read_tsv(file, split)
        else:
            yield from _read_squad_json(file)
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8 text: {error}") from None


def _read_parquet(file: Path) -> list[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise OSError(f"{file}: reading Parquet needs `pip install pyarrow`") from None
    try:
        return pyarrow.parquet.read_table(file).to_pylist()
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{file}: not a readable Parquet file: {error}") from error


def read_jsonl(file: Path) -> Iterator[Row]:
    with open(file, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{file}, line {number}: not JSON ({error})") from None
            if not isinstance(row, dict):
                raise ValueError(f'{file}, line {number}: expected an object like {{"sentence": "…", "label": 1}}')
            yield row


def _read_tsv(file: Path, split: Split) -> Iterator[Row]:
    layout = OFFICIAL_TSV[split.config]
    with open(file, encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    headless = layout.headless if not split.name.startswith("test") else ()
    header = list(headless) or (rows.pop(0) if rows else [])
    names = [layout.columns.get(name, name) for name in header]
    whole = [row for row in rows if len(row) >= len(names)]
    broken = len(rows) - len(whole)
    if broken > max(1, _BROKEN_SHARE * len(rows)):
        raise ValueError(
            f"{file}: {broken} of {len(rows)} lines have fewer than {len(names)} columns ({', '.join(names)})"
        )
    if broken:
        print(f"{file}: {broken} of {len(rows)} lines skipped: they have too few columns", file=sys.stderr)
    for row in whole:
        values: dict[str, Any] = dict(zip(names, row, strict=False))
        if "index" in values:
            values["idx"] = _number(values.pop("index"), file)
        yield values


def _number(text: str, file: Path) -> int:
    if not text.strip().isdigit():
        raise ValueError(f"{file}: index {text!r} is no number")
    return int(text)


def _read_squad_json(file: Path) -> Iterator[Row]:
    try:
        articles = json.loads(file.read_text(encoding="utf-8"))["data"]
        for article in articles:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    answers = question.get("answers", [])
                    yield {
                        "id": question["id"],
                        "context": paragraph["context"],
                        "question": question["question"],
                        "answers": {
                            "text": [answer["text"] for answer in answers],
                            "answer_start": [answer["answer_start"] for answer in answers],
                        },
                    }
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file}: not in the layout of SQuAD's JSON (data → paragraphs → qas): {error!r}") from None
