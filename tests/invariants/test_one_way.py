"""The one-way rule: a room imports only from rooms before it, and nothing imports the command line."""

import ast
from pathlib import Path

import pytest

import sharedqkv

ORDER = (
    "attention", "kernels", "models", "accounting", "data", "training", "interop", "tasks", "robustness", "evidence",
    "study", "cli",
)  # fmt: skip
ROOT = Path(sharedqkv.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT)


def imported_rooms(source: str) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            raise AssertionError(f"line {node.lineno}: relative imports hide the room; name it")
    return {parts[1] for name in names if (parts := name.split("."))[0] == "sharedqkv" and len(parts) > 1}


def may_not_import(room: str) -> set[str]:
    return set(ORDER[ORDER.index(room) + 1 :])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_rooms_look_back_only(path):
    room = path.relative_to(ROOT).parts[0]
    assert room in ORDER, f"{room} is not in the plan of the house"
    assert not imported_rooms(path.read_text()) & may_not_import(room)


def test_the_rule_can_be_broken():
    assert imported_rooms("from sharedqkv.cli import params") & may_not_import("models") == {"cli"}
    assert imported_rooms("import sharedqkv.models.heads") & may_not_import("attention") == {"models"}
    assert not imported_rooms("from sharedqkv.attention import Variant") & may_not_import("models")


def test_no_file_is_two_rooms_in_one():
    too_long = {str(path): count for path in FILES if (count := len(path.read_text().splitlines())) > 600}
    assert not too_long
