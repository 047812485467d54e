"""A whole benchmark: equality first, then rounds in which every entrant has its turn, then memory and energy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from sharedqkv.accounting.bench.entrants import Entrant
from sharedqkv.accounting.bench.equivalence import Agreement, agreement, require
from sharedqkv.accounting.bench.passes import (
    Batch,
    ForwardPass,
    Pass,
    Results,
    TrainStep,
    memory_of,
    seconds_of,
    watts_of,
)
from sharedqkv.accounting.bench.roofline import Floor, Peaks, floor_of, measure_peaks
from sharedqkv.accounting.bench.settings import Kind, Settings
from sharedqkv.accounting.bench.summary import Summary, summarise

Say = Callable[[str], None]


@dataclass
class PassMeasured:
    """Of one kind of pass, by entrant."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    agreements: list[Agreement] = field(default_factory=list)
    memory: dict[str, dict[str, int] | None] = field(default_factory=dict)
    watts: dict[str, float | None] = field(default_factory=dict)
    floors: dict[str, Floor] = field(default_factory=dict)

    def summaries(self, tokens: int) -> dict[str, Summary]:
        """Of the rounds that are whole; none of them when the first was interrupted."""
        rounds = min((len(values) for values in self.seconds.values()), default=0)
        return summarise({name: values[:rounds] for name, values in self.seconds.items()}, tokens) if rounds else {}


@dataclass
class Measured:
    device: str
    threads: int
    peaks: Peaks | None = None
    passes: dict[Kind, PassMeasured] = field(default_factory=dict)
    interrupted: bool = False


def measure(entrants: Sequence[Entrant], kinds: Sequence[Kind], settings: Settings, say: Say) -> Measured:
    """Interrupted by Ctrl-C, it gives back what it has."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    measured = Measured(name, torch.get_num_threads())
    try:
        say("measuring the device's peaks")
        measured.peaks = measure_peaks(device, torch.bfloat16 if settings.bf16 else torch.float32)
        for kind in kinds:
            measured.passes[kind] = PassMeasured()
            measured.passes[kind].floors = {e.name: floor_of(e, kind, settings, measured.peaks) for e in entrants}
            _measure_pass(measured.passes[kind], entrants, kind, settings, device, say)
    except KeyboardInterrupt:
        measured.interrupted = True
    except torch.OutOfMemoryError as error:
        raise ValueError(
            f"the device has too little memory for --rows {settings.rows} of --length {settings.length}: "
            f"take fewer rows or entrants ({str(error).splitlines()[0]})"
        ) from error
    return measured


def _measure_pass(
    measured: PassMeasured, entrants: Sequence[Entrant], kind: Kind, settings: Settings, device: torch.device, say: Say
) -> None:
    passes = _prepare(entrants, kind, settings, device, say)
    measured.agreements = _check_equality(passes, entrants, settings, kind, say)
    for name, run in passes.items():
        say(f"{kind}: warming up {name}")
        for _ in range(settings.warmup):
            run()
    measured.seconds = {name: [] for name in passes}
    for number in range(settings.rounds):
        # Back and forth, so that nobody always follows the same neighbour.
        for name in list(passes)[:: 1 if number % 2 == 0 else -1]:
            run = passes[name]
            run()  # what another model left in caches is not its fault
            measured.seconds[name].append(seconds_of(run, settings.steps))
        turns = ", ".join(f"{name} {1e3 * values[-1]:.2f} ms" for name, values in measured.seconds.items())
        say(f"{kind}: round {number + 1} of {settings.rounds}: {turns}")
    say(f"{kind}: memory and energy")
    for name, run in passes.items():
        measured.memory[name] = memory_of(run)
        measured.watts[name] = watts_of(run, measured.seconds[name][-1])


def _prepare(
    entrants: Sequence[Entrant], kind: Kind, settings: Settings, device: torch.device, say: Say
) -> dict[str, Pass]:
    vocab_size = min(entrant.config.vocab_size for entrant in entrants)
    batch = Batch.random(vocab_size, settings.rows, settings.length, device, settings.seed)
    weights: dict[str, Any] = {}
    passes: dict[str, Pass] = {}
    say(f"{kind}: building {len(entrants)} models")
    for entrant in entrants:
        torch.manual_seed(settings.seed)
        model = entrant.build()
        if entrant.same_as is not None:
            model.load_state_dict(weights[entrant.same_as])
        weights[entrant.name] = model.state_dict()
        model = model.to(device)
        if kind == "train":
            passes[entrant.name] = TrainStep(model, batch, settings.bf16, settings.compile, entrant.is_peer)
        else:
            passes[entrant.name] = ForwardPass(model, batch, settings.bf16, settings.compile)
    return passes


def _check_equality(
    passes: dict[str, Pass], entrants: Sequence[Entrant], settings: Settings, kind: Kind, say: Say
) -> list[Agreement]:
    dtype = "bfloat16" if settings.bf16 else "float32"
    asked_for = {entrant.same_as for entrant in entrants}
    expected: dict[str, Results] = {}
    agreements = []
    for entrant in entrants:
        say(f"{kind}: first run of {entrant.name}")
        try:
            results = passes[entrant.name].results(without_dropout=settings.dropout > 0)
        except (NotImplementedError, RuntimeError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            raise ValueError(
                f"{entrant.name} cannot be run here on backend {entrant.backend!r} ({str(error).splitlines()[0]}): "
                "leave it out or give it another backend"
            ) from error
        if entrant.name in asked_for:
            expected[entrant.name] = results
        if entrant.same_as is not None:
            found = agreement(entrant, results, expected[entrant.same_as], dtype)
            require(found)
            agreements.append(found)
            say(f"{kind}: {found.entrant} equals {found.same_as} within {found.difference:.1e} ({found.result})")
    return agreements
