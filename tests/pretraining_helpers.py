"""A small corpus, and runs through the command line: in this process, or in a child that is killed."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import sharedqkv_console
from sharedqkv.data.prepare import PrepareArguments, prepare
from sharedqkv.study.launch import family_of, kill

NAMES = ["anna", "bob", "carl", "dora", "emil", "fritz", "greta", "hans", "ida", "jan"]
VERBS = ["sees", "likes", "helps", "calls", "finds", "asks"]
THINGS = ["dog", "cat", "house", "tree", "book", "river", "stone", "cloud"]

SMALL = {
    "size": "tiny",
    "model": "{hidden_size: 32, num_attention_heads: 4, intermediate_size: 64}",
    "rows_per_step": 8,
    "rows_per_device": 8,
    "max_steps": 20,
    "logging_steps": 2,
    "eval_steps": 10,
    "save_steps": 4,
    "eval_rows": 16,
    "dropout": 0.1,
}
"""Settings that make a recipe run in seconds, with several epochs and with dropout."""


def make_corpus(folder: Path, layout: str = "chunks", documents: int = 30) -> Path:
    """About 40 training rows of 32 tokens."""
    chosen = random.Random(0)
    text = folder / "text.txt"
    folder.mkdir(parents=True, exist_ok=True)
    sentences = [
        [
            f"{chosen.choice(NAMES)} {chosen.choice(VERBS)} the {chosen.choice(THINGS)} ."
            for _ in range(chosen.randint(8, 16))
        ]
        for _ in range(documents)
    ]
    text.write_text("\n\n".join(" ".join(document) for document in sentences))
    arguments = PrepareArguments(
        output=str(folder / "corpus"),
        source=(str(text),),
        train_vocab_size=150,
        layout=layout,
        length=32,
        validation_fraction=0.3,
        processes=1,
    )
    prepare(arguments)
    return folder / "corpus"


def arguments_for(corpus: Path, output: Path, recipe: str = "tiny_cpu", **fields: Any) -> list[str]:
    values = {**SMALL, "data": corpus, "output": output, **fields}
    resume = ["--resume", str(values.pop("resume"))] if "resume" in values else []
    return ["pretrain", recipe, *resume, *(f"--{name}={value}" for name, value in values.items())]


def run_here(*arguments: Any, **fields: Any) -> int:
    return sharedqkv_console.main(arguments_for(*arguments, **fields))


def run_child(
    sabotage: str, *arguments: Any, launcher: tuple[str, ...] = (), **fields: Any
) -> subprocess.CompletedProcess:
    """The same in a child process, after some Python that makes it fail where we want."""
    call = f"sys.exit(sharedqkv_console.main({arguments_for(*arguments, **fields)!r}))"
    code = f"import sys\n{sabotage}\nimport sharedqkv_console\n{call}"
    if launcher:
        script = Path(arguments[1]).parent / "launched.py"
        script.write_text(code)
        command = [sys.executable, *launcher, str(script)]
    else:
        command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            output, errors = child.communicate(timeout=500)
        except subprocess.TimeoutExpired:
            its_own = family_of(child.pid)
            child.kill()
            kill(its_own)
            raise
    return subprocess.CompletedProcess(command, child.returncode, output, errors)


def curve(output: Path) -> list[dict[str, Any]]:
    """The metrics without what depends on the clock."""
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    timed = ("tokens_per_s", "seconds", "memory_gib", "mfu")
    return [{name: value for name, value in record.items() if name not in timed} for record in records]


KILL_AT_STEP = """
import os, signal
from sharedqkv.training.callbacks import Stop
inner = Stop.on_step_end
def on_step_end(self, args, state, control, **rest):
    if state.global_step == {step}: os.kill(os.getpid(), signal.{signal})
    return inner(self, args, state, control, **rest)
Stop.on_step_end = on_step_end
"""
KILL_IN_SAVE = """
import os, signal
from sharedqkv.training import checkpoints
inner = checkpoints.commit
def commit(path):
    if path.name == "checkpoint-{step}": os.kill(os.getpid(), signal.SIGKILL)
    inner(path)
checkpoints.commit = commit
"""
