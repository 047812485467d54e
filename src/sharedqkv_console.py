"""The console script. A module of its own, because importing `sharedqkv` loads torch and takes seconds: help and
mistakes in arguments must not."""

import argparse
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec, module_from_spec
from types import ModuleType

COMMANDS = {
    "params": "count parameters and FLOPs of every variant, and what each saves",
    "prepare": "turn text into shards: deduplicate, tokenise, cut into rows",
    "pretrain": "pre-train an encoder from a recipe; resumes exactly",
    "finetune": "fine-tune on GLUE or SQuAD with many seeds, and score",
    "predict": "ask a fine-tuned model",
    "robust": "try fine-tuned models on noise and on other domains",
    "compare": "say which of two fine-tuned models is better, by how much and how sure",
    "bench": "time models side by side: training step, forward pass, memory, energy, the device's limit",
    "study": "from a YAML file to a report: pre-train, fine-tune, try and compare",
    "report": "make the report of a study again from its folder",
    "doctor": "say what is installed, which backends and devices work, and what is missing",
}
"""Command → help; the code is in `sharedqkv.cli.<command>`."""


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    command = arguments[0] if arguments else None
    if command not in COMMANDS:
        _overview().parse_args(arguments or ["--help"])
    try:
        return _run(command, arguments[1:])
    except (ValueError, OSError) as error:
        print(f"sharedqkv {command}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"sharedqkv {command}: interrupted", file=sys.stderr)
        return 130


def _run(command: str | None, arguments: list[str]) -> int:
    with _package_not_yet_run():
        module, options = _parse(command, arguments)
    return module.run(options)


@contextmanager
def _package_not_yet_run() -> Iterator[None]:
    """Inside, modules of the package can be imported without its `__init__`, which loads torch and all models."""
    if "sharedqkv" in sys.modules:
        yield
        return
    spec = find_spec("sharedqkv")
    assert spec is not None
    assert spec.loader is not None
    package = sys.modules["sharedqkv"] = module_from_spec(spec)
    try:
        yield
        spec.loader.exec_module(package)
    except BaseException:
        for name in [name for name in sys.modules if name.partition(".")[0] == "sharedqkv"]:
            del sys.modules[name]  # half a package would be of no use to who imports it later
        raise


def _parse(command: str | None, arguments: list[str]) -> tuple[ModuleType, argparse.Namespace]:
    module = importlib.import_module(f"sharedqkv.cli.{command}")
    parser = argparse.ArgumentParser(
        prog=f"sharedqkv {command}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    options, rest = parser.parse_known_args(arguments)
    if rest and not getattr(module, "TAKES_FIELDS", False):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.fields = rest
    if hasattr(module, "check"):
        module.check(options)
    return module, options


def _overview() -> argparse.ArgumentParser:
    width = max(len(name) for name in COMMANDS)
    commands = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="sharedqkv",
        description="Transformer encoders whose queries, keys and values share their weights.",
        epilog=f"commands:\n{commands}\n\n`sharedqkv <command> --help` describes one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=_version())
    parser.add_argument("command", metavar="command", choices=list(COMMANDS))
    return parser


def _version() -> str:
    try:
        return f"sharedqkv {version('sharedqkv')}"
    except PackageNotFoundError:
        return "sharedqkv (not installed)"


if __name__ == "__main__":
    raise SystemExit(main())
