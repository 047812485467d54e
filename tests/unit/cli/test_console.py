"""The console script, as a user meets it."""

import subprocess
import sys
import time

import pytest

import sharedqkv_console


def run(*arguments: str, module: str = "sharedqkv_console") -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, timeout=120)


def test_help_answers_in_under_a_second():
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        result = run("--help")
        seconds.append(time.perf_counter() - start)
    assert result.returncode == 0
    assert all(command in result.stdout for command in sharedqkv_console.COMMANDS)
    assert min(seconds) < 1


def test_help_imports_nothing_heavy():
    code = """
import sys, sharedqkv_console
try:
    sharedqkv_console.main(["--help"])
except SystemExit:
    print("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.endswith("False\n")


def test_no_command_shows_the_help():
    assert "commands:" in run().stdout


def test_unknown_commands_list_the_known():
    result = run("parms")
    assert result.returncode == 2
    assert "invalid choice: 'parms'" in result.stderr
    assert "params" in result.stderr


def test_version():
    import sharedqkv

    assert run("--version").stdout.strip() == f"sharedqkv {sharedqkv.__version__}"


def test_python_dash_m():
    assert "commands:" in run("--help", module="sharedqkv").stdout


@pytest.mark.parametrize("command", sharedqkv_console.COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        sharedqkv_console.main([command, "--help"])
    assert stopped.value.code == 0
    assert f"usage: sharedqkv {command}" in capsys.readouterr().out


def test_mistakes_are_told_without_a_traceback(capsys):
    assert sharedqkv_console.main(["params", "--variants", "shard"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("sharedqkv params: error: unknown attention_variant 'shard'. Did you mean 'shared'?")
    assert captured.out == ""


def test_ctrl_c_is_told_in_a_line(monkeypatch, capsys):
    import sharedqkv.cli.params

    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(sharedqkv.cli.params, "run", interrupted)
    assert sharedqkv_console.main(["params"]) == 130
    assert capsys.readouterr().err == "sharedqkv params: interrupted\n"
