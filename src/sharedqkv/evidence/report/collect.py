"""A study's folder, read: who was compared, what each stage left behind, what is missing."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sharedqkv.attention import variant_names
from sharedqkv.data.manifest import Manifest
from sharedqkv.evidence.learning_rates import judged_loss
from sharedqkv.evidence.report.bench import Bench, bench_of_record, bench_of_stage
from sharedqkv.models import SharedQKVConfig
from sharedqkv.training.run_folder import RunFolder

NOT_ASKED = "This part was not asked for in the study."
_NEEDED = (
    "title", "description", "state", "study_yaml", "command", "environment", "started", "ended", "baseline", "entrants",
    "tasks", "noises", "severities", "noise_seeds", "domains", "cells",
)  # fmt: skip
"""Keys of study.json that the report reads."""


@dataclass(frozen=True)
class Entrant:
    """One of those that are compared."""

    name: str
    slug: str
    """Its folder."""
    variant: str
    attention_options: dict[str, Any]
    position_embedding_type: str
    model: dict[str, Any]
    """Other fields of the configuration."""

    @property
    def spec(self) -> str:
        """As in the study's `variants`: where there are several kinds of positions, names have them besides."""
        return self.name.removesuffix(f", {self.position_embedding_type}")

    def same_but_for_positions(self, other: "Entrant") -> bool:
        mine, theirs = ((e.variant, e.attention_options, e.model) for e in (self, other))
        return mine == theirs


@dataclass(frozen=True)
class Pretraining:
    """One pre-training run that ended well."""

    seed: int
    tokens: int
    training: list[tuple[int, float]]
    """(tokens, loss)"""
    held_out: list[tuple[int, float]]
    final_loss: float
    seconds: float
    config: SharedQKVConfig
    recipe: dict[str, Any]
    """As run.json has it."""
    commit: str | None
    """Of the code that trained it."""


@dataclass(frozen=True)
class Maps:
    sentence: str
    tokens: list[str]
    entrants: dict[str, np.ndarray]
    """By name: (layers, tokens, tokens), averaged over heads."""


@dataclass(frozen=True)
class Corpus:
    length: int
    """Of a row."""
    unigram_entropy: float | None
    """Of the validation text, in nats a token: the loss of whoever knows just how frequent each token is.

    None where only the corpus' manifest was kept.
    """


@dataclass(frozen=True)
class Search:
    """Of learning rates."""

    learning_rates: list[float]
    max_tokens: int
    """Of a run."""
    position: str
    """Positions of the models it was done with."""
    losses: dict[str, dict[float, float | None]]
    """By name: rate → `judged_loss`."""


@dataclass(frozen=True)
class RateCheck:
    """A whole run with a learning rate that was taken, or with another one."""

    model: str
    seed: int
    learning_rate: float
    training_loss: float | None
    """`judged_loss`."""
    held_out_loss: float | None
    taken: bool


@dataclass(frozen=True)
class Study:
    folder: Path
    info: dict[str, Any]
    """study.json."""
    entrants: list[Entrant]
    pretraining: dict[str, list[Pretraining]]
    """By name, for those that have any."""
    other_budgets: dict[str, list[Pretraining]]
    """By name: whole runs with fewer or more tokens."""
    rate_checks: list[RateCheck]
    """In the order of the entrants; of seeds that were also run with rates that were not taken."""
    finetuning: dict[str, dict[int, Path]]
    """By name: pre-training seed → run."""
    bench: Bench | None
    maps: Maps | None
    corpus: Corpus | None
    search: Search | None
    problems: dict[str, str]
    """What could not be read, and why."""

    @property
    def side_by_side(self) -> int:
        """How many runs shared a device: if it is more than one, their times tell nothing."""
        return self.info.get("side_by_side", 1)

    @property
    def baseline(self) -> Entrant:
        return self._named(self.info["baseline"])

    def baseline_of(self, model: str) -> str | None:
        """With whom it is compared: the baseline with its positions and, where there is such a one, its other options.

        The study's own baseline is compared with nobody; one that is the baseline of its positions, with that.
        """
        entrant, own = self._named(model), self.baseline
        if entrant is own:
            return None
        akin = [
            other
            for other in self._others_with_positions_of(entrant)
            if (other.variant, other.attention_options) == (own.variant, own.attention_options)
        ]
        for options in (entrant.model, own.model):
            for other in akin:
                if other.model == options:
                    return other.name
        return own.name

    @property
    def baselines(self) -> list[str]:
        """All that others are compared with, the study's own first."""
        found = [self.baseline_of(entrant.name) for entrant in self.entrants]
        return list(dict.fromkeys([self.baseline.name, *(name for name in found if name is not None)]))

    def rival_of(self, model: str, variant: str) -> str | None:
        """One of this variant with the model's positions and, where there is such a one, its other options."""
        entrant = self._named(model)
        rivals = [other for other in self._others_with_positions_of(entrant) if other.variant == variant]
        alike = [rival for rival in rivals if rival.model == entrant.model]
        return next((rival.name for rival in [*alike, *rivals]), None)

    def _named(self, name: str) -> Entrant:
        return next(entrant for entrant in self.entrants if entrant.name == name)

    def _others_with_positions_of(self, entrant: Entrant) -> list[Entrant]:
        positions = entrant.position_embedding_type
        return [e for e in self.entrants if e is not entrant and e.position_embedding_type == positions]

    def entrant(self, variant: str) -> Entrant | None:
        """The first of this variant, with the baseline's kind of positions where there is such a one."""
        found = [entrant for entrant in self.entrants if entrant.variant == variant]
        like_baseline = [e for e in found if e.position_embedding_type == self.baseline.position_embedding_type]
        return next(iter([*like_baseline, *found]), None)

    @property
    def focus(self) -> Entrant | None:
        """Whom the study is about: the paper's variant, or the first that is not the baseline."""
        others = [entrant for entrant in self.entrants if entrant is not self.baseline]
        shared = self.entrant("shared")
        return shared if shared in others else next(iter(others), None)

    def cells(self, stage: str, state: str) -> dict[str, str | None]:
        """The stage's cells in this state, with their errors."""
        return {
            name: cell.get("error") and self.without_path(cell["error"])
            for name, cell in self.info["cells"].items()
            if name.split("/")[0] == stage and cell["state"] == state
        }

    def absence(self, stage: str) -> str:
        """Why there is nothing of a stage, in words."""
        if failed := self.cells(stage, "failed"):
            return f"This part failed: {'; '.join(f'{name}: {error}' for name, error in failed.items())}."
        if self.cells(stage, "done"):
            return "This part of the study left nothing to show."
        if any(name.split("/")[0] == stage for name in self.info["cells"]):
            return "There is nothing to show yet: this part of the study is not finished."
        return NOT_ASKED

    def without_path(self, text: str) -> str:
        return text.replace(f"{self.folder}/", "")


def read_study(folder: Path) -> Study:
    """Only study.json must be there; whatever else is missing or damaged is told as a problem, or is just not there."""
    info = _read_info(folder)
    entrants = [
        Entrant(**{field.name: entrant[field.name] for field in dataclasses.fields(Entrant)})
        for entrant in info["entrants"]
    ]
    _refuse_unknown_variants(folder, entrants)
    reader = _Reader(folder, entrants, info["cells"], problems={})
    pretraining = reader.pretraining()
    return Study(
        folder=folder,
        info=info,
        entrants=entrants,
        pretraining=pretraining,
        other_budgets=reader.other_budgets(),
        rate_checks=reader.rate_checks(),
        finetuning=reader.finetuning(),
        bench=reader.bench(pretraining),
        maps=reader.maps(),
        corpus=reader.corpus(),
        search=reader.search(info["search"]) if "search" in info else None,
        problems=reader.problems,
    )


def _read_info(folder: Path) -> dict[str, Any]:
    file = folder / "study.json"
    try:
        info = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"{folder} is no study folder: {file.name} is missing. Give the folder that `sharedqkv study` wrote"
        ) from None
    except ValueError as error:
        raise ValueError(f"{file} is damaged ({error}): run the same `sharedqkv study` command again") from None
    missing = [key for key in _NEEDED if key not in info]
    if missing or info["baseline"] not in [entrant["name"] for entrant in info["entrants"]]:
        what = f"{', '.join(missing)} missing" if missing else f"baseline {info['baseline']!r} is no entrant"
        raise ValueError(f"{file}: {what}. Run the same `sharedqkv study` command again")
    return info


def _refuse_unknown_variants(folder: Path, entrants: Iterable[Entrant]) -> None:
    """Their sizes could not be counted, and their runs would look damaged."""
    known = variant_names()
    for entrant in entrants:
        if entrant.variant not in known:
            raise ValueError(
                f"{folder}: {entrant.name} is of the variant {entrant.variant!r}, which is not known here. Install the "
                "plugin that has it (the study's README may name it), then make the report again"
            )


@dataclass
class _Reader:
    folder: Path
    entrants: list[Entrant]
    cells: dict[str, Any]
    problems: dict[str, str]

    def pretraining(self) -> dict[str, list[Pretraining]]:
        return self._whole_runs(self._runs("pretrain"))

    def other_budgets(self) -> dict[str, list[Pretraining]]:
        return self._whole_runs(self._checks("tokens"))

    def rate_checks(self) -> list[RateCheck]:
        others = self._checks("rate")
        checked = [(entrant.slug, seed) for entrant, seed, _ in others]
        taken = [run for run in self._runs("pretrain") if (run[0].slug, run[1]) in checked]
        found = [
            *(self._rate_check(*run, taken=True) for run in taken),
            *(self._rate_check(*run, taken=False) for run in others),
        ]
        names = [entrant.name for entrant in self.entrants]
        known = [check for check in found if check is not None]
        return sorted(known, key=lambda check: (names.index(check.model), check.seed, check.learning_rate))

    def _rate_check(self, entrant: Entrant, seed: int, path: Path, taken: bool) -> RateCheck | None:
        run = RunFolder(path)
        try:
            info = run.info()
            rate = info["recipe"]["learning_rate"]
            return RateCheck(entrant.name, seed, rate, judged_loss(run), info.get("eval_loss"), taken)
        except (ValueError, KeyError, OSError) as error:
            self._problem(path, error)
            return None

    def _whole_runs(self, runs: Iterable[tuple[Entrant, int, Path]]) -> dict[str, list[Pretraining]]:
        """Those that ended well."""
        found: dict[str, list[Pretraining]] = {}
        for entrant, seed, path in runs:
            try:
                if RunFolder(path).info()["state"] == "done":
                    found.setdefault(entrant.name, []).append(_pretraining(path, seed))
            except (ValueError, KeyError, OSError) as error:
                self._problem(path, error)
        return found

    def finetuning(self) -> dict[str, dict[int, Path]]:
        found: dict[str, dict[int, Path]] = {}
        for entrant, seed, path in self._runs("finetune"):
            found.setdefault(entrant.name, {})[seed] = path
        return found

    def bench(self, pretraining: dict[str, list[Pretraining]]) -> Bench | None:
        """The study's own, or else a `sharedqkv bench` whose output is the folder `bench`."""
        if self._is_current("bench") and (self.folder / "bench.json").exists():
            return self._file("bench.json", lambda content: bench_of_stage(content, self.entrants))
        return self._file("bench/record.json", lambda record: bench_of_record(record, self.entrants, pretraining))

    def maps(self) -> Maps | None:
        return self._file("maps.json", self._maps) if self._is_current("maps") else None

    def corpus(self) -> Corpus | None:
        if not (self.folder / "corpus" / "manifest.json").exists():
            return self._file("corpus_manifest.json", lambda manifest: Corpus(manifest["length"], None))
        try:
            return _corpus(self.folder / "corpus")
        except (ValueError, OSError) as error:
            self._problem(self.folder / "corpus", error)
            return None

    def search(self, asked: dict[str, Any]) -> Search:
        losses = {
            entrant.name: {rate: self._judged_loss(entrant, rate) for rate in asked["learning_rates"]}
            for entrant in self.entrants
            if entrant.position_embedding_type == asked["position"]
        }
        return Search(**asked, losses=losses)

    def _judged_loss(self, entrant: Entrant, rate: float) -> float | None:
        path = self.folder / "search" / entrant.slug / f"{rate:g}"
        try:
            return judged_loss(RunFolder(path))
        except (ValueError, KeyError, OSError) as error:
            self._problem(path, error)
            return None

    def _runs(self, stage: str) -> list[tuple[Entrant, int, Path]]:
        return [
            (entrant, int(path.parent.name), path.parent)
            for entrant in self.entrants
            for path in sorted(
                (self.folder / stage / entrant.slug).glob("[0-9]*/run.json"), key=lambda path: int(path.parent.name)
            )
            if self._is_current(f"{stage}/{entrant.slug}/{path.parent.name}")
        ]

    def _checks(self, of: str) -> list[tuple[Entrant, int, Path]]:
        """Whole runs that differ from those of the study in one thing: `checks/SLUG/SEED-OF-VALUE`."""
        return [
            (entrant, int(path.parent.name.split("-")[0]), path.parent)
            for entrant in self.entrants
            for path in sorted((self.folder / "checks" / entrant.slug).glob(f"[0-9]*-{of}-*/run.json"))
        ]

    def _is_current(self, name: str) -> bool:
        """Not of a seed that is no longer asked for, nor left over from settings that have changed since."""
        cell = self.cells.get(name)
        return cell is not None and cell["state"] in ("done", "failed") and not cell.get("left_out")

    def _file(self, name: str, build: Any) -> Any:
        path = self.folder / name
        if not path.exists():
            return None
        try:
            return build(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, KeyError, TypeError) as error:
            self._problem(path, error)
            return None

    def _maps(self, content: dict[str, Any]) -> Maps:
        entrants = {name: np.array(layers) for name, layers in self._by_name(content["entrants"]).items()}
        return Maps(content["sentence"], content["tokens"], entrants)

    def _by_name(self, by_slug: dict[str, Any]) -> dict[str, Any]:
        return {entrant.name: by_slug[entrant.slug] for entrant in self.entrants if entrant.slug in by_slug}

    def _problem(self, path: Path, error: Exception) -> None:
        text = f"{error}".replace(f"{self.folder}/", "")
        self.problems[str(path.relative_to(self.folder))] = f"{type(error).__name__}: {text}"


def _pretraining(path: Path, seed: int) -> Pretraining:
    run = RunFolder(path)
    metrics = run.metrics()
    return Pretraining(
        seed=seed,
        tokens=max(record["tokens"] for record in metrics),
        training=[(record["tokens"], record["loss"]) for record in metrics if "loss" in record],
        held_out=[(record["tokens"], record["eval_loss"]) for record in metrics if "eval_loss" in record],
        final_loss=run.info()["eval_loss"],
        seconds=sum(record.get("seconds", 0) for record in metrics),
        config=SharedQKVConfig.from_pretrained(run.model),
        recipe=run.info().get("recipe", {}),
        commit=commit_of(run.info().get("environment") or {}),
    )


def commit_of(environment: Mapping[str, Any]) -> str | None:
    git = environment.get("git") or {}
    return git["sha"] + (" with changes" if git.get("dirty") else "") if git.get("sha") else None


def _corpus(folder: Path) -> Corpus:
    manifest = Manifest.read(folder)
    counts = np.zeros(manifest.vocab_size, dtype=np.int64)
    for shard in manifest.validation.shards:
        rows = np.load(folder / shard.file.name, mmap_mode="r")
        counts += np.bincount(rows.ravel(), minlength=manifest.vocab_size)
    counts[[manifest.pad_id, manifest.cls_id, manifest.sep_id]] = 0
    shares = counts[counts > 0] / counts.sum()
    return Corpus(manifest.length, float(-(shares * np.log(shares)).sum()))
