"""A variant from outside the package passes the whole common suite, and a broken one does not."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "third_party_variant.py"


def run_common_suite(source: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    command += ["--variants-from", str(source), str(ROOT / "tests" / "common")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_example_passes_the_common_suite():
    result = run_common_suite(EXAMPLE)
    assert result.returncode == 0, result.stdout[-3000:]
    assert " passed" in result.stdout
    assert "skipped" not in result.stdout


def test_a_wrong_reference_is_noticed(tmp_path):
    """The suite can fail: the same variant with another formula as its reference."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        EXAMPLE.read_text()
        + "\nfrom sharedqkv.attention import reference\n"
        + "name = list(reference._FORMULAS)[-1]\n"
        + "right = reference._FORMULAS[name]\n"
        + "reference._FORMULAS[name] = lambda w, x, head, variant: right(w, 1.01 * x, head, variant)\n"
    )
    result = run_common_suite(wrong, "-k", "equal_the_reference and MaskedLM")
    assert result.returncode == 1
    assert "4 failed" in result.stdout


def test_a_file_without_a_variant_is_named(tmp_path):
    (tmp_path / "empty.py").write_text("")
    result = run_common_suite(tmp_path / "empty.py")
    assert result.returncode != 0
    assert "it registers no variant" in result.stdout + result.stderr
