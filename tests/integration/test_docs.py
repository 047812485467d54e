"""The Python blocks of the documents run as written, top to bottom, in an empty folder and without the hub."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

from sharedqkv import SharedQKVConfig, variant_names
from sharedqkv.attention import get_variant

ROOT = Path(__file__).parents[2]
MODELS_PAGE = ROOT / "docs" / "models.md"
PAGES = [
    ROOT / "README.md",
    MODELS_PAGE,
    *(ROOT / "docs" / f"{name}.md" for name in ("data", "finetuning", "inference", "statistics")),
]


def python_of(document: str) -> str:
    """The ```python blocks as one script. All other lines are left empty, so that a traceback's line numbers are the
    document's."""
    lines = []
    inside = False
    for line in document.splitlines():
        if line.startswith("```"):
            inside = line.strip() == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines).rstrip()


def test_python_of_keeps_order_and_line_numbers():
    document = "# Title\n```python\na = 1\n```\n```bash\nrm -r x\n```\ntext\n```python\nb = a\n```\n"
    assert python_of(document).splitlines() == ["", "", "a = 1", "", "", "", "", "", "", "b = a"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run(page, tmp_path):
    code = python_of(page.read_text(encoding="utf-8"))
    assert code, f"{page.name} has lost its python blocks"
    script = tmp_path / f"{page.stem}.py"
    script.write_text(code, encoding="utf-8")
    shutil.copy(ROOT / "examples" / "third_party_variant.py", tmp_path)
    # A process of its own: blocks register variants and change models for good.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{page.name}, line numbers as in the page:\n{done.stderr[-4000:]}"


def lora_table() -> list[tuple[str, dict[str, bool], set[str]]]:
    """(variant, options, target modules) for every variant in the LoRA table of docs/models.md."""
    section = MODELS_PAGE.read_text(encoding="utf-8").split("\n## LoRA\n")[1].split("\n## ")[0]
    rows = []
    for line in section.splitlines():
        if line.startswith("| `"):
            variants, targets = (cell.split("`")[1::2] for cell in line.strip("| ").split(" | "))
            if " with " in line:
                rows.append((variants[0], {variants[1]: True}, set(targets)))
            else:
                rows += [(name, {}, set(targets)) for name in variants]
    return rows


def test_lora_table_names_every_variant():
    # Other tests may have registered more.
    own = {name for name in variant_names() if get_variant(name).__module__.startswith("sharedqkv.")}
    assert {name for name, _, _ in lora_table()} == own


@pytest.mark.parametrize(("name", "options", "targets"), lora_table())
def test_lora_table_names_the_real_layers(name, options, targets):
    config = SharedQKVConfig.from_size("tiny", attention_variant=name, attention_options=options)
    layers = config.build_attention_variant().named_modules()
    assert targets == {path.split(".")[-1] for path, layer in layers if isinstance(layer, nn.Linear)}
