"""Say what is installed, which backends and devices work, and what is missing and how to get it.

Exits with 1 when something required is missing or too old, or when no attention backend works.
"""

import argparse
import json
import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from packaging.requirements import Requirement
from rich import box
from rich.console import Console
from rich.table import Table

from sharedqkv.cli.probes import Finding, probes_for, run_probes

OPTIONAL_PACKAGES = {
    "peft": ("LoRA and other adapters", "pip install 'sharedqkv[peft]'"),
    "torchao": ("int8 inference", "pip install 'sharedqkv[int8]'"),
    "triton": ("flex_attention and fused kernels on NVIDIA GPUs", "pip install triton"),
    "flash-attn": ("attn_implementation='flash_attention_2' on NVIDIA GPUs", "pip install flash-attn"),
}


@dataclass(frozen=True)
class Package:
    name: str
    required: bool
    wanted: str
    installed: str | None
    fine: bool
    advice: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--no-probes", action="store_true", help="only look at what is installed; try nothing out")


def run(options: argparse.Namespace) -> int:
    console = Console(quiet=options.json)
    packages = check_packages()
    _print_packages(console, packages)
    devices = find_devices()
    for name, described in devices.items():
        console.print(f"device {name}: {described}")
    findings: list[Finding] = []
    if not options.no_probes:
        with console.status("trying attention backends and dtypes…"):
            findings = list(run_probes(probes_for(list(devices))))
        _print_findings(console, findings)
    problems = find_problems(packages, findings)
    if options.json:
        report: dict[str, Any] = {
            "python": platform.python_version(),
            "packages": [asdict(package) for package in packages],
            "devices": devices,
            "probes": [{**asdict(f.probe), "works": f.works, "detail": f.detail} for f in findings],
            "problems": problems,
        }
        print(json.dumps(report, indent=2))
    for problem in problems:
        console.print(f"[bold red]problem:[/] {problem}")
    if not problems:
        console.print("All that is required is here and works.")
    return 1 if problems else 0


def check_packages() -> list[Package]:
    """The requirements of the installed package itself, then what is optional."""
    packages = []
    for text in requires("sharedqkv") or []:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        installed = _installed(requirement.name)
        fine = installed is not None and requirement.specifier.contains(installed, prereleases=True)
        advice = "" if fine else f"pip install '{requirement.name}{requirement.specifier}'"
        packages.append(Package(requirement.name, True, str(requirement.specifier), installed, fine, advice))
    for name, (purpose, advice) in OPTIONAL_PACKAGES.items():
        installed = _installed(name)
        packages.append(Package(name, False, purpose, installed, installed is not None, "" if installed else advice))
    return packages


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def find_devices() -> dict[str, str]:
    import torch

    devices = {"cpu": f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads"}
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            devices[f"cuda:{index}"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    if torch.backends.mps.is_available():
        devices["mps"] = "Apple GPU"
    return devices


def find_problems(packages: list[Package], findings: list[Finding]) -> list[str]:
    problems = []
    for package in packages:
        if package.required and not package.fine:
            has = f"version {package.installed} is" if package.installed else "it is not"
            problems.append(f"{package.name} {package.wanted} is required and {has} installed: {package.advice}")
    for device in {finding.probe.device for finding in findings}:
        if not any(finding.works for finding in findings if finding.probe.device == device):
            problems.append(f"no attention backend works on {device}; see the trials above")
    for finding in findings:
        if finding.probe.device == "cpu" and finding.probe.dtype == "bfloat16" and not finding.works:
            problems.append(
                "bfloat16 does not work on this CPU; set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python starts, "
                "or stay with float32"
            )
    return problems


def _print_packages(console: Console, packages: list[Package]) -> None:
    table = Table(box=box.SIMPLE_HEAD, title=f"Python {platform.python_version()} on {platform.system()}")
    for column in ("package", "installed", "wanted", "to do"):
        table.add_column(column)
    for package in packages:
        state = package.installed or ("[bold red]missing[/]" if package.required else "-")
        table.add_row(package.name, state, package.wanted, package.advice)
    console.print(table)


def _print_findings(console: Console, findings: list[Finding]) -> None:
    table = Table(box=box.SIMPLE_HEAD, title="Trials: a tiny model forward and backward")
    for column in ("device", "backend", "dtype", "works", "detail"):
        table.add_column(column)
    for finding in findings:
        probe = finding.probe
        works = "yes" if finding.works else "[bold red]no[/]"
        table.add_row(probe.device, probe.backend, probe.dtype, works, finding.detail)
    console.print(table)
