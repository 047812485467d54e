"""How fast `sharedqkv prepare` is: raw text a second for 1, 2, … processes, and the largest process's memory.

python benchmarks/prepare.py --source TEXT --tokenizer VOCAB --output results/HARDWARE/DATE-prepare
"""

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path

from sharedqkv.data.prepare import PrepareArguments, prepare
from sharedqkv.training.run_folder import environment, now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--layouts", nargs="+", default=["chunks", "packed", "pairs"])
    options = parser.parse_args()
    results = []
    for layout in options.layouts:
        for processes in range(1, (os.cpu_count() or 1) + 1):
            with tempfile.TemporaryDirectory() as folder:
                arguments = PrepareArguments(
                    output=f"{folder}/corpus",
                    source=(options.source,),
                    tokenizer=options.tokenizer,
                    layout=layout,
                    length=128,
                    processes=processes,
                )
                start = time.perf_counter()
                manifest = prepare(arguments)
                seconds = time.perf_counter() - start
            megabytes = sum(source.text_bytes for source in manifest.sources) / 1e6
            speed = megabytes / seconds
            results.append({"layout": layout, "processes": processes, "seconds": seconds, "mb_per_s": speed})
            print(
                f"{layout}, {processes} processes: {megabytes:.0f} MB in {seconds:.1f} s, {speed:.1f} MB/s", flush=True
            )
    usage = [resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    record = {
        "benchmark": "prepare",
        "date": now(),
        "megabytes": megabytes,
        "results": results,
        "largest_process_mib": max(usage),
        "environment": environment(),
    }
    Path(options.output).mkdir(parents=True, exist_ok=True)
    (Path(options.output) / "record.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
