"""Packages of third parties; most of these tests make one that is broken, as pip would have installed it."""

import os
import subprocess
import sys

import pytest

from sharedqkv import plugins
from sharedqkv.attention import get_variant
from sharedqkv.tasks.registry import get_task

TOLD = (
    "the plugin 'spiral' (spiral_attention) of the package spiral-extras cannot be loaded "
    "(ModuleNotFoundError: No module named 'left_behind'): fix it, or uninstall it with `pip uninstall spiral-extras`"
)


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "spiral_attention.py").write_text("import left_behind\n")
    info = tmp_path / "spiral_extras-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: spiral-extras\nVersion: 1.0\n")
    groups = [f"[{group}]\nspiral = spiral_attention\n" for group in ("sharedqkv.variants", "sharedqkv.tasks")]
    (info / "entry_points.txt").write_text("\n".join(groups))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "_left_out", {})
    return tmp_path


@pytest.mark.parametrize("find", [get_variant, get_task])
def test_a_broken_plugin_is_named_with_its_cause_and_remedy(find, place, caplog):
    with pytest.raises(ValueError, match=r"unknown .* 'spiral'") as caught:
        find("spiral")
    assert str(caught.value).endswith(f"Left out: {TOLD}.")
    assert caplog.messages == [TOLD]


def test_it_is_told_once(place, caplog):
    for _ in range(2):
        plugins.load_plugins("sharedqkv.variants")
    assert caplog.messages == [TOLD]


def test_an_unknown_name_speaks_of_plugins_only_where_one_is_broken(monkeypatch):
    monkeypatch.setattr(plugins, "_left_out", {})
    with pytest.raises(ValueError, match="unknown") as caught:
        get_variant("spiral")
    assert "Left out" not in str(caught.value)


def test_commands_that_do_not_need_it_go_on(place):
    command = [sys.executable, "-m", "sharedqkv_console", "params", "--size", "tiny"]
    result = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(place)}, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert "shared:bias=true" in result.stdout
    assert result.stderr.strip() == TOLD
