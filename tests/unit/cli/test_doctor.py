import json

import pytest

import sharedqkv_console
from sharedqkv.cli import doctor, probes
from sharedqkv.cli.probes import Finding, Probe, run_probes
from sharedqkv.kernels import op


def test_reports_what_is_here_and_works(capsys, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # set for the tests of the kernels
    assert sharedqkv_console.main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    packages = {package["name"]: package for package in report["packages"]}
    assert packages["torch"]["fine"]
    works = {(p["device"], p["backend"], p["dtype"]): p["works"] for p in report["probes"]}
    assert works["cpu", "eager", "float32"]
    assert works["cpu", "sdpa", "float32"]
    assert report["problems"] == []
    details = {p["backend"]: p["detail"] for p in report["probes"] if (p["device"], p["dtype"]) == ("cpu", "float32")}
    assert details["sdpa"] == "forward and backward"
    assert details["fused"].startswith("forward and backward, but by SDPA: ")


def test_says_what_is_missing_and_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "_installed", lambda name: {"torch": "1.0"}.get(name))
    assert sharedqkv_console.main(["doctor", "--no-probes"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "torch >=2.11 is required and version 1.0 is installed: pip install 'torch>=2.11'" in output
    assert "transformers >=5.17 is required and it is not installed: pip install 'transformers>=5.17'" in output


def test_a_trial_that_kills_its_process_does_not_end_the_others(monkeypatch):
    """The child here dies on its second trial, as bf16 does on some CPUs."""
    child = (
        "import json, os, sys\n"
        "for probe in json.loads(sys.argv[1]):\n"
        "    if probe['dtype'] == 'bfloat16': os.kill(os.getpid(), 4)\n"
        "    print(json.dumps({'works': True, 'detail': 'fine'}), flush=True)\n"
    )
    real = probes.subprocess.Popen
    monkeypatch.setattr(
        probes.subprocess, "Popen", lambda command, **rest: real([command[0], "-c", child, command[-1]], **rest)
    )
    findings = list(run_probes([Probe("cpu", "sdpa", dtype) for dtype in ("float32", "bfloat16", "float16")]))
    assert [finding.works for finding in findings] == [True, False, True]
    assert "died with exit code -4" in findings[1].detail


def test_an_impossible_backend_is_a_finding_not_a_crash():
    works, detail = probes.try_out(Probe("cpu", "no_such_backend", "float32"))
    assert not works
    assert "no_such_backend" in detail


def test_what_fused_leaves_to_sdpa_is_told_with_the_reason(monkeypatch):
    monkeypatch.setattr(op, "TRITON_INSTALLED", True)
    monkeypatch.setattr(op, "INTERPRETED", False)
    works, detail = probes.try_out(Probe("cpu", "fused", "float32"))
    assert works
    assert detail == ("forward and backward, but by SDPA: the kernels need an NVIDIA GPU, and the tensors are on 'cpu'")
    monkeypatch.setattr(op, "TRITON_INSTALLED", False)
    assert probes.try_out(Probe("cpu", "fused", "float32"))[1].endswith("but by SDPA: Triton is not installed")


@pytest.mark.parametrize("works", [True, False])
def test_broken_bfloat16_has_a_remedy(works):
    finding = Finding(Probe("cpu", "sdpa", "bfloat16"), works, "")
    other = Finding(Probe("cpu", "sdpa", "float32"), True, "")
    problems = doctor.find_problems([], [finding, other])
    assert [("ONEDNN_MAX_CPU_ISA" in problem) for problem in problems] == ([] if works else [True])
