"""One pre-training run in several processes, one a GPU, through `accelerate launch`.

The launcher hands a signal on to data loaders too, which breaks the run, and kills it 30 seconds later. So it gets
none. Its standard input is a pipe that the training processes inherit and watch: a byte for each asks them to save a
checkpoint and stop; its end, also when whoever holds the other side was killed, ends them at once. One that hangs
sees neither, so whoever gives up waiting kills all of them.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil
import yaml

from sharedqkv.training.pretrain import pretrain, quiet_transformers
from sharedqkv.training.recipe import PretrainRecipe, load_recipe
from sharedqkv.training.run_folder import RunFolder

CHECKPOINT_WAIT_S = 60
"""So long a run that is asked to stop may take to save a checkpoint."""


def launch(recipe: PretrainRecipe, processes: int, gpus: Sequence[str] = ()) -> None:
    """Train, or go on training; the output goes to where this process prints. Without GPUs on the CPU."""
    output = Path(recipe.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    file = output.with_name(f"{output.name}.yaml")
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in recipe.to_dict().items()}
    file.write_text(yaml.safe_dump(plain), encoding="utf-8")
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
    sys.stdout.flush()
    launcher = subprocess.Popen(
        _command(file, processes),
        stdin=subprocess.PIPE,
        stdout=sys.stdout,
        stderr=subprocess.STDOUT,
        env={**os.environ, **visible},
        start_new_session=True,  # Ctrl-C in the terminal must not reach it
    )
    assert launcher.stdin is not None
    try:
        code = launcher.wait()
    except KeyboardInterrupt:
        with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
            launcher.stdin.write(b"." * processes)
            launcher.stdin.flush()
            launcher.wait(CHECKPOINT_WAIT_S)
        raise
    finally:
        with contextlib.suppress(BrokenPipeError):
            launcher.stdin.close()
        family = family_of(launcher.pid) if launcher.poll() is None else []
        launcher.kill()
        launcher.wait()
        kill(family)
    if code or RunFolder(output).info()["state"] != "done":
        raise OSError(f"`accelerate launch` ended with {code} before the run was done; its output says why")


def family_of(pid: int) -> list[psutil.Process]:
    """All that a living process has started, and that those have."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _command(recipe: Path, processes: int) -> list[str]:
    command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(processes)]
    # Any free port, since several runs may share a machine; the recipe decides about precision and compilation.
    command += ["--main_process_port", "0", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    return [*command, "-m", "sharedqkv.study.launch", str(recipe)]


def main() -> None:
    """In each process of the launcher: `python -m sharedqkv.study.launch RECIPE`."""
    threading.Thread(target=_watch, args=(sys.stdin.fileno(),), daemon=True).start()
    quiet_transformers()
    pretrain(load_recipe(sys.argv[1], {}), "auto")


def _watch(pipe: int) -> None:
    if os.read(pipe, 1):
        os.kill(os.getpid(), signal.SIGTERM)
        end = select.poll()
        end.register(pipe, 0)  # no more bytes, those are for the others; the end is reported all the same
        end.poll()
    os._exit(1)


if __name__ == "__main__":
    main()
