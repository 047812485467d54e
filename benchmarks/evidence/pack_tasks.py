"""Tasks and the other domains of their models, small enough to travel to a machine that can read JSON lines only.

    python benchmarks/evidence/pack_tasks.py DATA OUTPUT.tar.xz --tasks cola,mrpc,rte,stsb,sst2

DATA is a folder as `sharedqkv finetune --data` and `sharedqkv robust --data` take it; so is what OUTPUT unpacks to.
"""

import argparse
import io
import json
import lzma
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from sharedqkv.robustness.domains import domains_for
from sharedqkv.tasks.finetune import parse_tasks
from sharedqkv.tasks.registry import get_task
from sharedqkv.tasks.sources import load_rows, rows_from_folders
from sharedqkv.tasks.task import Row, Split


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--tasks", required=True)
    parser.add_argument("--no-domains", action="store_true", help="for studies that try no other domains")
    options = parser.parse_args()
    files = dict(files_of(options.data, parse_tasks(options.tasks), with_domains=not options.no_domains))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(options.output, "w:xz", preset=9 | lzma.PRESET_EXTREME) as tar:
        for name, rows in sorted(files.items()):
            content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
            print(f"{name}: {len(rows):,} rows")
    print(f"{options.output}: {options.output.stat().st_size / 2**20:.1f} MiB")


def files_of(data: Path, tasks: list[str], with_domains: bool) -> Iterator[tuple[str, list[Row]]]:
    domains = {domain.name: domain for task in tasks for domain in domains_for(task)} if with_domains else {}
    for task in map(get_task, tasks):
        for split in (task.train, *task.validation):
            yield f"{split.config}/{split.name}.jsonl", load_rows(data, split)[0]
    for domain in domains.values():
        for part in (domain.split, *(["original"] if domain.edited else [])):
            rows, _ = rows_from_folders(data, [data / "domains" / domain.name], Split(domain.name, part))
            yield f"domains/{domain.name}/{part}.jsonl", rows


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
