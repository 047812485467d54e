"""Time and memory of the models: measured by the study's own stage, or by a `sharedqkv bench` of its models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sharedqkv.accounting import count_parameters
from sharedqkv.accounting.bench.settings import PEERS
from sharedqkv.models.specs import parse_spec

if TYPE_CHECKING:
    from sharedqkv.evidence.report.collect import Entrant, Pretraining

_SAME_SIZE = 0.05
"""Parameters may differ by this share: the bench has BERT's number of positions, a study may have fewer."""


@dataclass(frozen=True)
class Timing:
    """Of one entrant: seconds of every repeat."""

    train_step_s: Sequence[float]
    forward_s: Sequence[float]
    """Empty where it was not measured."""
    peak_memory_bytes: int | None


@dataclass(frozen=True)
class Bench:
    device: str
    threads: int
    rows: int
    length: int
    entrants: dict[str, Timing]
    """By name."""
    bf16: bool = False
    compile: bool = False
    attn_implementation: str = "sdpa"
    """Several are joined by commas. Files of studies that name none were measured so."""
    size: str | None = None
    """Of the models that `sharedqkv bench` measured; None for those of the study's own stage."""


def bench_of_stage(content: Mapping[str, Any], entrants: Sequence["Entrant"]) -> Bench:
    """`bench.json`, which names entrants by slug."""
    by_slug = content["entrants"]
    timings = {entrant.name: Timing(**by_slug[entrant.slug]) for entrant in entrants if entrant.slug in by_slug}
    if not all(timing.train_step_s and timing.forward_s for timing in timings.values()):
        raise ValueError("a model without times")
    return Bench(**{**content, "entrants": timings})


def bench_of_record(
    record: Mapping[str, Any], entrants: Sequence["Entrant"], pretraining: Mapping[str, Sequence["Pretraining"]]
) -> Bench:
    """`record.json` of `sharedqkv bench`, of whose entrants the study's are taken."""
    if "train" not in record["passes"]:
        raise ValueError("no training step was measured: run `sharedqkv bench` with --passes train")
    names = {
        entrant.name: name
        for entrant in entrants
        if (name := _name_in_record(record, entrant, pretraining.get(entrant.name, ()))) is not None
    }
    if not names:
        raise ValueError(f"nobody of the study is among {', '.join(record['entrants'])}")
    config = record["config"]
    return Bench(
        device=record["device"],
        threads=record["threads"],
        rows=config["rows"],
        length=config["length"],
        entrants={model: _timing(record["passes"], name) for model, name in names.items()},
        bf16=config["bf16"],
        compile=config["compile"],
        attn_implementation=", ".join(sorted({record["entrants"][name]["backend"] for name in names.values()})),
        size=config["size"],
    )


def _name_in_record(record: Mapping[str, Any], entrant: "Entrant", runs: Sequence["Pretraining"]) -> str | None:
    """Of several that differ in their backend, the one it was trained with, or else the first."""
    found = {
        name: about["backend"]
        for name, about in record["entrants"].items()
        if name not in PEERS and _is_same(name, record["config"]["positions"], entrant)
    }
    if not found:
        return None
    trained_with = runs[0].recipe.get("attn_implementation") if runs else None
    name = next((name for name, backend in found.items() if backend == trained_with), next(iter(found)))
    if runs:
        _refuse_other_steps(record["config"], runs[0].recipe, name)
        mine, theirs = count_parameters(runs[0].config).model, record["entrants"][name]["parameters"]
        if abs(theirs / mine - 1) > _SAME_SIZE:
            raise ValueError(
                f"{name} has {theirs:,} parameters and the study's {entrant.name} {mine:,}: run `sharedqkv bench` with "
                "the --size of the study"
            )
    return name


def _refuse_other_steps(measured: Mapping[str, Any], trained: Mapping[str, Any], name: str) -> None:
    for setting, default in (("norm_placement", "post"), ("dropout", 0.0)):
        was, is_trained = measured.get(setting, default), trained.get(setting, default)
        if was != is_trained:
            raise ValueError(
                f"{name} was measured with {setting} {was} and trained with {is_trained}: run `sharedqkv bench` with "
                f"--{setting} {is_trained}"
            )


def _is_same(name: str, positions: str, entrant: "Entrant") -> bool:
    from sharedqkv.accounting.bench.entrants import split_entrant  # imports models of Transformers

    variant, options, model = parse_spec(split_entrant(name).spec)
    positions = model.pop("position_embedding_type", positions)
    mine = (entrant.variant, entrant.attention_options, entrant.model, entrant.position_embedding_type)
    return mine == (variant, options, model, positions)


def _timing(passes: Mapping[str, Any], name: str) -> Timing:
    train, forward = passes["train"], passes.get("forward", {"seconds_of_rounds": {}})
    if not train["seconds_of_rounds"].get(name):
        raise ValueError(f"{name} has no times")
    memory = [row["peak_memory_bytes"] for row in train["results"] if row["entrant"] == name]
    return Timing(
        train_step_s=train["seconds_of_rounds"][name],
        forward_s=forward["seconds_of_rounds"].get(name, []),
        peak_memory_bytes=next(iter(memory), None),
    )
