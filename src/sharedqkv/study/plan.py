"""A study file, read and checked: who is compared, on what, with which seeds and settings.

Everything that can be wrong in it is told before anything runs, with the line and the key.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from sharedqkv import schema
from sharedqkv.data.prepare import PrepareArguments
from sharedqkv.data.sources import NAMED_CORPORA, resolve_source
from sharedqkv.models.specs import parse_spec
from sharedqkv.robustness.conditions import parse_noises, parse_severities
from sharedqkv.robustness.domains import parse_domains
from sharedqkv.robustness.grid import Plan
from sharedqkv.tasks.built_in import BUILT_IN
from sharedqkv.tasks.finetune import parse_seeds, parse_tasks
from sharedqkv.tasks.recipe import FinetuneRecipe, load_recipes_from
from sharedqkv.training.recipe import PretrainRecipe, recipe_values

SHIPPED = Path(str(files("sharedqkv"))) / "studies"


@dataclass(frozen=True)
class StudyFile:
    title: str
    """of the report"""
    variants: tuple[str, ...]
    """who is compared, like shared or standard:num_hidden_layers=10; the first is the baseline"""
    corpus: dict[str, Any]
    """fields of `sharedqkv prepare`, or {world: documents, ...} for the built-in world"""
    pretrain: dict[str, Any]
    """{recipe: name or path, ...} and fields of a pre-training recipe"""
    description: str = ""
    """what the study is for"""
    positions: tuple[str, ...] = ()
    """absolute, rotary or both: every variant is run with each; default: the recipe's"""
    seeds: int | tuple[int, ...] = 1
    """of pre-training, a count or a list"""
    finetune: dict[str, Any] = field(default_factory=dict)
    """{tasks: ..., seeds: ..., data: folder} and fields of a fine-tuning recipe; none: no fine-tuning"""
    robust: dict[str, Any] = field(default_factory=dict)
    """{noise: ..., severity: ..., seeds: ..., domains: ..., examples: ...}; none: no such stage"""
    bench: dict[str, Any] = field(default_factory=dict)
    """{rows: ..., length: ..., repeats: ...}: time and memory of a step; none: no such stage"""
    sentence: str = ""
    """whose attention is shown for each model"""
    threads: int = 1
    """of a cell on a CPU; numbers depend on it, so that it is fixed"""
    gpus_per_run: int = 1
    """of a pre-training run; more than one go through `accelerate launch`"""


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


@dataclass(frozen=True)
class Bench:
    rows: int = 16
    """Rows of a step."""
    length: int = 128
    repeats: int = 5


@dataclass(frozen=True)
class WorldSizes:
    documents: int
    seed: int = 0
    train: int = 2000
    """Rows of each task's training set."""
    validation: int = 400
    out_of_domain: int = 400


@dataclass(frozen=True)
class Study:
    name: str
    file: StudyFile
    text: str
    """The YAML."""
    entrants: list[Entrant]
    seeds: list[int]
    world: WorldSizes | None
    prepare: dict[str, Any]
    """Fields of PrepareArguments, but for its output."""
    pretrain: dict[str, Any]
    """Fields of PretrainRecipe, but for data, output, seed and the entrant's own."""
    tasks: dict[str, FinetuneRecipe]
    finetune_seeds: list[int]
    task_data: str | None
    """Folder; None for the hub, or with a world for its own tasks."""
    robust: Plan | None
    bench: Bench | None

    def recipe(self, entrant: Entrant, seed: int, corpus: Path, output: Path) -> PretrainRecipe:
        values = {
            **self.pretrain,
            "data": str(corpus),
            "output": str(output),
            "seed": seed,
            "attention_variant": entrant.variant,
            "attention_options": entrant.attention_options,
            "position_embedding_type": entrant.position_embedding_type,
            "model": {**self.pretrain.get("model", {}), **entrant.model},
        }
        return schema.build(PretrainRecipe, values, self.name)


def shipped_studies() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def load_study(name: str) -> Study:
    """By shipped name or path."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = SHIPPED / f"{name}.yaml"
    if not path.is_file():
        raise FileNotFoundError(
            f"no study {name!r}: give the path of a YAML file or one of the shipped {', '.join(shipped_studies())}"
        )
    file = schema.load_yaml(StudyFile, path)
    return _Reader(path, file).study()


class _Reader:
    """Turns a study file into a study; knows the line of every key for its errors."""

    def __init__(self, path: Path, file: StudyFile):
        self.path = path
        self.file = file
        self.text = path.read_text(encoding="utf-8")
        node = yaml.compose(self.text, Loader=yaml.SafeLoader)
        self.nodes = {key.value: (key.start_mark.line + 1, value) for key, value in node.value}

    def study(self) -> Study:
        file = self.file
        if file.threads < 1 or file.gpus_per_run < 1:
            raise ValueError(f"{self.path}: threads and gpus_per_run must be at least 1")
        seeds = self._at("seeds", lambda: parse_seeds(_listed(file.seeds)))
        world, prepare = self._corpus()
        pretrain = self._pretrain()
        entrants = self._entrants(pretrain)
        tasks, finetune_seeds, data = self._finetune(world)
        study = Study(
            name=self.path.stem,
            file=file,
            text=self.text,
            entrants=entrants,
            seeds=seeds,
            world=world,
            prepare=prepare,
            pretrain=pretrain,
            tasks=tasks,
            finetune_seeds=finetune_seeds,
            task_data=data,
            robust=self._robust(tasks),
            bench=self._section("bench", Bench) if file.bench else None,
        )
        for entrant in entrants:
            self._at("pretrain", lambda entrant=entrant: study.recipe(entrant, 0, Path("corpus"), Path("run")))
        return study

    def _at(self, key: str, function: Any) -> Any:
        """What the function gives; its errors with the line of the key."""
        try:
            return function()
        except (ValueError, OSError) as error:
            message = str(error).removeprefix(f"{self.path.stem}: ").removeprefix(f"--{key} ")
            raise ValueError(f"{self.path}, line {self._line(key)}: {key}: {message}") from None

    def _line(self, key: str) -> int:
        return self.nodes[key][0] if key in self.nodes else 1

    def _lines(self, section: str) -> dict[str, int]:
        """Of the keys inside a section."""
        if section not in self.nodes or not isinstance(self.nodes[section][1], yaml.MappingNode):
            return {}
        return {key.value: key.start_mark.line + 1 for key, _ in self.nodes[section][1].value}

    def _section(self, section: str, kind: type[Any], values: Mapping[str, Any] | None = None) -> Any:
        given = getattr(self.file, section) if values is None else values
        return schema.build(kind, given, str(self.path), self._lines(section))

    def _corpus(self) -> tuple[WorldSizes | None, dict[str, Any]]:
        values = dict(self.file.corpus)
        if "world" not in values:
            self._section("corpus", PrepareArguments, {"output": "corpus", **values})
            self._check_sources(values)
            return None, values
        if "source" in values:
            raise ValueError(f"{self.path}, line {self._line('corpus')}: corpus: give world or source, not both")
        sizes = {item.name for item in dataclasses.fields(WorldSizes)} - {"documents"}
        given = {name: values.pop(name) for name in list(values) if name in sizes}
        world = self._section("corpus", WorldSizes, {"documents": values.pop("world"), **given})
        if world.documents < 1:
            raise ValueError(f"{self.path}, line {self._lines('corpus')['world']}: world must be at least 1 document")
        self._section("corpus", PrepareArguments, {"output": "corpus", "source": ["world"], **values})
        return world, values

    def _check_sources(self, values: Mapping[str, Any]) -> None:
        for key in ("source", "validation_source"):
            for source in values.get(key, ()):
                name = source.rpartition("=")[0] or source
                if name.partition("@")[0] in NAMED_CORPORA:
                    continue  # on the hub
                try:
                    resolve_source(source, "train")
                except (ValueError, OSError) as error:
                    line = self._lines("corpus")[key]
                    raise ValueError(f"{self.path}, line {line}: corpus: {key}: {error}") from None

    def _pretrain(self) -> dict[str, Any]:
        values = dict(self.file.pretrain)
        recipe = values.pop("recipe", None)
        reserved = {"data", "output", "seed", "attention_variant", "attention_options"} & set(values)
        if reserved:
            key = min(reserved)
            raise ValueError(
                f"{self.path}, line {self._lines('pretrain')[key]}: pretrain: {key} is the study's to set "
                "(corpus, seeds and variants decide it)"
            )
        base = self._at("pretrain", lambda: recipe_values(recipe)) if recipe else {}
        merged = recipe_values(None, base, values)
        self._section("pretrain", PretrainRecipe, {**merged, "data": "corpus", "output": "run"})
        return {name: value for name, value in merged.items() if name not in ("data", "output", "seed")}

    def _entrants(self, pretrain: Mapping[str, Any]) -> list[Entrant]:
        own = pretrain.get("position_embedding_type", "absolute")
        positions = self.file.positions or (own,)
        for position in positions:
            if position not in ("absolute", "rotary"):
                where = f"{self.path}, line {self._line('positions')}"
                raise ValueError(f"{where}: positions: {position!r} is neither absolute nor rotary")
        if not self.file.variants:
            raise ValueError(f"{self.path}, line {self._line('variants')}: variants: name at least one")
        found = []
        for position in positions:
            for spec in self.file.variants:
                variant, options, model = self._at("variants", lambda spec=spec: parse_spec(spec))
                name = f"{spec}, {position}" if len(positions) > 1 else spec
                slug = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-")
                found.append(
                    Entrant(name, slug, variant, options, model.pop("position_embedding_type", position), model)
                )
        slugs = [entrant.slug for entrant in found]
        if len(set(slugs)) < len(slugs):
            twice = next(entrant.name for entrant in found if slugs.count(entrant.slug) > 1)
            raise ValueError(f"{self.path}, line {self._line('variants')}: variants: {twice} stands there twice")
        return found

    def _finetune(self, world: WorldSizes | None) -> tuple[dict[str, FinetuneRecipe], list[int], str | None]:
        values = dict(self.file.finetune)
        if not values:
            return {}, [], None
        lines = self._lines("finetune")
        names = values.pop("tasks", None)
        if not names:
            raise ValueError(
                f"{self.path}, line {self._line('finetune')}: finetune: tasks is missing, a list like [cola]"
            )
        seeds, data = values.pop("seeds", 1), values.pop("data", None)
        tasks = self._at("finetune", lambda: [task for task in parse_tasks(_listed(names)) if task != "ax"])
        if data is None and world is not None:
            foreign = [task for task in tasks if task not in BUILT_IN]
            if foreign:
                raise ValueError(
                    f"{self.path}, line {lines['tasks']}: finetune: the built-in world has no {', '.join(foreign)}; it "
                    f"has {', '.join(BUILT_IN)}. Give data: FOLDER for others"
                )
        if data is not None and not Path(data).is_dir():
            raise FileNotFoundError(f"{self.path}, line {lines['data']}: finetune: data {data}: no such folder")
        recipes = load_recipes_from(tasks, values, str(self.path), lines)
        return recipes, self._at("finetune", lambda: parse_seeds(_listed(seeds))), data

    def _robust(self, tasks: Mapping[str, Any]) -> Plan | None:
        values = dict(self.file.robust)
        if not values:
            return None
        if not tasks:
            raise ValueError(f"{self.path}, line {self._line('robust')}: robust: needs finetune, whose models it tries")
        settings = self._section("robust", _Robust)
        if settings.examples is not None and settings.examples < 1:
            line = self._lines("robust")["examples"]
            raise ValueError(f"{self.path}, line {line}: robust: examples must be at least 1, not {settings.examples}")

        def plan() -> Plan:
            return Plan(
                noises=parse_noises(_listed(settings.noise)),
                severities=parse_severities(_listed(settings.severity)),
                seeds=parse_seeds(_listed(settings.seeds)),
                domains=[] if settings.domains == "none" else parse_domains(_listed(settings.domains)),
                limit=settings.examples,
            )

        return self._at("robust", plan)


@dataclass(frozen=True)
class _Robust:
    noise: str | tuple[str, ...] = "all"
    severity: str | tuple[int, ...] = "1-5"
    seeds: int | tuple[int, ...] = 1
    domains: str | tuple[str, ...] = "none"
    examples: int | None = None


def _listed(value: Any) -> str:
    """As the command line would have it: `1`, `a,b`, `7,`."""
    if not isinstance(value, list | tuple):
        return str(value)
    return ",".join(map(str, value)) + ("," if len(value) == 1 else "")
