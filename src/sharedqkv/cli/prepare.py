"""Turn text into shards for pre-training: read, drop duplicate documents, tokenise, cut into rows, write.

Stopped by Ctrl-C, a kill or a crash, the same command goes on where it was.
"""

import argparse
import sys

from sharedqkv.cli.dataclass_arguments import add_dataclass_arguments, dataclass_from
from sharedqkv.data.manifest import Manifest
from sharedqkv.data.prepare import PrepareArguments, prepare


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_dataclass_arguments(parser, PrepareArguments)


def check(options: argparse.Namespace) -> None:
    dataclass_from(options, PrepareArguments)


def run(options: argparse.Namespace) -> int:
    arguments = dataclass_from(options, PrepareArguments)
    try:
        manifest = prepare(arguments)
    except KeyboardInterrupt:
        print(f"What is finished is kept in {arguments.output}: the same command goes on from there.", file=sys.stderr)
        raise
    _print_summary(manifest, arguments.output)
    return 0


def _print_summary(manifest: Manifest, output: str) -> None:
    for source in manifest.sources:
        print(
            f"{source.name}: {source.text_bytes / 1e6:,.1f} MB of text, {source.documents:,} documents, "
            f"{source.duplicates:,} duplicates dropped, {source.repaired:,} repaired, {source.rows:,} rows"
        )
    for name, split in (("train", manifest.train), ("validation", manifest.validation)):
        print(f"{name}: {split.rows:,} rows of {manifest.length}, {split.tokens:,} tokens, {len(split.shards)} shards")
    print(f"{manifest.layout}, {manifest.vocab_size:,} tokens in the vocabulary, in {output}")
