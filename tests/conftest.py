"""Options and fixtures for all tests."""

import os

# Before torch is imported: see the Makefile.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["OMP_NUM_THREADS"] = "1"  # sums of several threads differ in their last digits from run to run
# What reports say of the checkout must not change while somebody works in it.
os.environ["SHAREDQKV_GIT_SHA"] = "0" * 40

import gc
import importlib
import importlib.util
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

# Before Triton is imported: without a GPU the kernels run in its interpreter.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

from sharedqkv import variant_names
from sharedqkv.attention import registry


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--variants-from",
        metavar="FILE_OR_MODULE",
        help="run the common suite on the variants this file or module registers instead of the built-in ones",
    )


def pytest_configure(config: pytest.Config) -> None:
    if importlib.util.find_spec("hypothesis"):  # tests on a borrowed GPU do without
        _load_hypothesis_profile()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in what a script starts in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # or what a test starts and interrupts is deaf too
    # xdist workers import one after the other what each would compute with; one thread each is plenty.
    torch.set_num_threads(1)
    source = config.getoption("--variants-from")
    known = set(variant_names())
    if source:
        _import(source)
    config.stash[VARIANTS] = [name for name in variant_names() if not source or name not in known]
    if not config.stash[VARIANTS]:
        raise pytest.UsageError(f"--variants-from {source}: it registers no variant")


def pytest_unconfigure() -> None:
    gc.unfreeze()  # or the interpreter frees nothing of it at its end, and Triton complains


def _load_hypothesis_profile() -> None:
    """A busy machine is no failure, and a suite that gates others must say the same every time."""
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "suite", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("suite")


VARIANTS = pytest.StashKey[list[str]]()


def _import(source: str) -> None:
    if not source.endswith(".py"):
        importlib.import_module(source)
        return
    if not Path(source).is_file():
        raise pytest.UsageError(f"--variants-from {source}: no such file")
    spec = importlib.util.spec_from_file_location(Path(source).stem, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # torch.compile looks modules up by name
    spec.loader.exec_module(module)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with an argument `variant` runs on every variant."""
    if "variant" in metafunc.fixturenames:
        metafunc.parametrize("variant", metafunc.config.stash[VARIANTS])


@pytest.fixture(autouse=True, scope="module")
def _garbage_is_found_quickly() -> None:
    """Every training ends with a full garbage collection, which would look at all modules and tests each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A handler that a test leaves behind would break another one, in another process every time."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    left = [signal.getsignal(number) for number in numbers]
    for number, handler in zip(numbers, before, strict=True):
        if handler is not None:  # None: not Python's
            signal.signal(number, handler)
    assert left == before


@pytest.fixture
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory holds NaN, so that a parameter nobody initialised cannot pass for a good one."""

    def poisoned(make):
        def make_poisoned(*args, **kwargs):
            tensor = make(*args, **kwargs)
            if tensor.is_floating_point() and not tensor.is_meta:
                with torch.no_grad():
                    tensor.fill_(float("nan"))
            return tensor

        return make_poisoned

    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, poisoned(getattr(torch, name)))


@pytest.fixture
def ties(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The ties under trial are known as if their plugin were installed."""
    monkeypatch.setattr(registry, "_VARIANTS", dict(registry._VARIANTS))
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks" / "evidence" / "ties")
    for name in ("sharedqkv_ties", "sharedqkv_near"):
        sys.modules.pop(name, None)
        importlib.import_module(name)
    return sys.modules["sharedqkv_ties"]
