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


WITHOUT_WAITING = """
import sys, sharedqkv_console
try:
    code = sharedqkv_console.main(sys.argv[1:])
except SystemExit as stopped:
    code = stopped.code
print(code, sorted({"torch", "transformers"} & set(sys.modules)))
"""


def answered_without_torch(*arguments: str) -> str:
    """What is printed by the end of a new process, the exit code and what it loaded last."""
    command = [sys.executable, "-c", WITHOUT_WAITING, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.parametrize("command", [[], *([command] for command in sharedqkv_console.COMMANDS)])
def test_help_does_not_wait_for_torch(command):
    printed = answered_without_torch(*command, "--help")
    assert printed.startswith("usage: sharedqkv")
    assert printed.endswith("0 []\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["params", "--lengths", "0"],
        ["prepare", "--source", "a.txt", "--output", "out", "--train-vocab-size", "5"],
        ["bench", "--peers", "gpt"],
        ["bench", "--rows", "0"],
        ["robust", "run", "--output", "out", "--noise", "keybord"],
        ["compare", "run"],
        ["report"],
    ],
)
def test_mistakes_in_arguments_do_not_wait_for_torch(arguments):
    assert answered_without_torch(*arguments) == "2 []\n"


def test_after_help_the_package_can_be_imported_whole():
    code = """
import sharedqkv_console
try:
    sharedqkv_console.main(["bench", "--help"])
except SystemExit:
    import sharedqkv.schema
    from transformers import AutoConfig
    print(sharedqkv.schema.__name__, AutoConfig.for_model("sharedqkv").attention_variant)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.stdout.endswith("sharedqkv.schema standard\n"), result.stderr


def test_a_command_runs_with_the_package_whole():
    code = """
import sys, sharedqkv_console
sharedqkv_console.main(["params", "--size", "tiny", "--variants", "shared"])
print(sys.modules["sharedqkv"].SharedQKVConfig.__name__)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.stdout.endswith("SharedQKVConfig\n"), result.stderr


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
