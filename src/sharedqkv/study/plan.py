"""A study file, read and checked. What can be wrong in it is told before anything runs, with the line and the key."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from sharedqkv import schema
from sharedqkv.data.prepare import FIRST_LOOK, PrepareArguments
from sharedqkv.data.sources import NAMED_CORPORA, Source, first_documents, resolve_source
from sharedqkv.data.tokenizer import check_vocab_size
from sharedqkv.evidence.report.collect import Entrant
from sharedqkv.models import SharedQKVConfig
from sharedqkv.models.specs import parse_spec
from sharedqkv.robustness.conditions import parse_noises, parse_severities
from sharedqkv.robustness.domains import DOMAINS, parse_domains
from sharedqkv.robustness.grid import Plan
from sharedqkv.study.definition import Bench, Question, Study, StudyFile, WorldSizes
from sharedqkv.study.shipped import SHIPPED, shipped_studies
from sharedqkv.study.world import World
from sharedqkv.tasks.built_in import BUILT_IN
from sharedqkv.tasks.finetune import parse_seeds, parse_tasks
from sharedqkv.tasks.recipe import FinetuneRecipe, load_recipes_from
from sharedqkv.tasks.registry import get_task
from sharedqkv.tasks.sources import require_split
from sharedqkv.training.recipe import PretrainRecipe, recipe_values

__all__ = ["Entrant", "Study", "load_study"]

FEW_STORIES = 20
"""Of the world, to know its characters by."""


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
        self._refuse_twice(node)
        self.nodes = {key.value: (key.start_mark.line + 1, value) for key, value in node.value}

    def _refuse_twice(self, mapping: yaml.MappingNode) -> None:
        """YAML would take the last of two equal keys without a word."""
        seen: set[str] = set()
        for key, value in mapping.value:
            if key.value in seen:
                raise ValueError(f"{self.path}, line {key.start_mark.line + 1}: {key.value} stands there twice")
            seen.add(key.value)
            if isinstance(value, yaml.MappingNode):
                self._refuse_twice(value)

    def study(self) -> Study:
        file = self.file
        seeds = self._at("seeds", lambda: parse_seeds(_listed(file.seeds)))
        world, prepare = self._corpus()
        pretrain = self._pretrain()
        entrants = self._entrants(pretrain)
        self._check_questions()
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
            self._check_model(study, entrant)
        self._check_run(study)
        return study

    def _check_model(self, study: Study, entrant: Entrant) -> None:
        def config(length: int) -> SharedQKVConfig:
            try:
                return study.model_config(entrant, length)
            except ValueError as error:
                raise ValueError(f"{entrant.name}: {str(error).removeprefix(f'{study.name}: ')}") from None

        pretrained = self._at("variants", partial(config, study.length))
        wanted = [("corpus", "length", study.length, pretrained)]
        wanted += [("finetune", "max_length", recipe.max_length, pretrained) for recipe in study.tasks.values()]
        if study.bench:
            wanted.append(("bench", "length", study.bench.length, config(study.bench.length)))
        for section, key, length, model in wanted:
            positions = model.max_position_embeddings
            if length > positions:
                raise self._error(
                    section,
                    f"{key} {length} is more than the {positions} positions of {entrant.name}: lower it, or give "
                    f"pretrain a model: {{max_position_embeddings: {length}}}",
                )

    def _check_run(self, study: Study) -> None:
        recipe = study.recipe(study.entrants[0], 0, Path("corpus"), Path("run"))
        share = recipe.rows_per_device * study.file.gpus_per_run
        if recipe.rows_per_step % share:
            raise self._error(
                "pretrain",
                f"rows_per_step {recipe.rows_per_step} cannot be dealt to gpus_per_run {study.file.gpus_per_run} of "
                f"rows_per_device {recipe.rows_per_device} each: make it a multiple of {share}",
            )
        if recipe.next_sentence and study.prepare.get("layout") != "pairs":
            raise self._error("corpus", "next_sentence of the recipe needs text in pairs: give layout: pairs")
        backends = [("pretrain", recipe.attn_implementation)]
        backends += [("finetune", task.attn_implementation) for task in study.tasks.values()]
        known = ["eager", *ALL_ATTENTION_FUNCTIONS.valid_keys()]
        for section, name in backends:
            if name not in known and "/" not in name:  # with a slash it is a kernel on the hub
                raise self._error(section, f"attn_implementation {name!r} is unknown; known: {', '.join(known)}")

    def _at(self, section: str, function: Callable[[], Any]) -> Any:
        """What the function gives; its errors with their line."""
        try:
            return function()
        except (ValueError, OSError) as error:
            raise self._error(section, str(error)) from None

    def _error(self, section: str, message: str) -> ValueError:
        """With the line of the key that the message names, or else of the section."""
        if message.startswith(f"{self.path}, line "):
            return ValueError(message)
        message = message.removeprefix(f"{self.path}: ").removeprefix(f"--{section} ")
        key = schema.first_named(message, self._lines(section))
        line = self._lines(section)[key] if key else self._line(section)
        return ValueError(f"{self.path}, line {line}: {section}: {message}")

    def _line(self, key: str) -> int:
        return self.nodes[key][0] if key in self.nodes else 1

    def _lines(self, section: str) -> dict[str, int]:
        """Of the keys inside a section."""
        if section not in self.nodes or not isinstance(self.nodes[section][1], yaml.MappingNode):
            return {}
        return {key.value: key.start_mark.line + 1 for key, _ in self.nodes[section][1].value}

    def _section(self, section: str, kind: type[Any], values: Mapping[str, Any] | None = None) -> Any:
        given = getattr(self.file, section) if values is None else values
        return self._at(section, lambda: schema.build(kind, given, str(self.path), self._lines(section)))

    def _corpus(self) -> tuple[WorldSizes | None, dict[str, Any]]:
        values = dict(self.file.corpus)
        if "world" not in values:
            arguments = self._section("corpus", PrepareArguments, {"output": "corpus", **values})
            if sources := self._check_sources(values):
                self._check_vocab_size(arguments, first_documents(sources, FIRST_LOOK, arguments.text_options()))
            return None, values
        if "source" in values:
            raise self._error("corpus", "give world or source, not both")
        sizes = {item.name for item in dataclasses.fields(WorldSizes)}
        given = {name: values.pop(name) for name in list(values) if name in sizes}
        world = self._section("corpus", WorldSizes, given)
        arguments = self._section("corpus", PrepareArguments, {"output": "corpus", "source": ["world"], **values})
        self._check_vocab_size(arguments, World(world.seed).documents(min(world.world, FEW_STORIES)))
        return world, values

    def _check_vocab_size(self, arguments: PrepareArguments, texts: Iterable[str]) -> None:
        if (size := arguments.train_vocab_size) is not None:
            self._at("corpus", lambda: check_vocab_size(texts, size, arguments.cased))

    def _check_sources(self, values: Mapping[str, Any]) -> list[Source]:
        """Those to train on that are here and not on the hub."""
        found = []
        for key in ("source", "validation_source"):
            for source in values.get(key, ()):
                name = source.rpartition("=")[0] or source
                if name.partition("@")[0] in NAMED_CORPORA:
                    continue  # on the hub
                try:
                    resolved = resolve_source(source, "train")
                except (ValueError, OSError) as error:
                    raise self._error("corpus", f"{key}: {error}") from None
                if key == "source":
                    found.append(resolved)
        return found

    def _pretrain(self) -> dict[str, Any]:
        values = dict(self.file.pretrain)
        recipe = values.pop("recipe", None)
        reserved = {"data", "output", "seed", "attention_variant", "attention_options"} & set(values)
        if reserved:
            raise self._error(
                "pretrain", f"{min(reserved)} is the study's to set (corpus, seeds and variants decide it)"
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
                raise self._error("positions", f"{position!r} is neither absolute nor rotary")
        if not self.file.variants:
            raise self._error("variants", "name at least one")
        found = []
        for position in positions:
            for spec in self.file.variants:
                variant, options, model = self._at("variants", partial(parse_spec, spec))
                if len(positions) > 1 and "position_embedding_type" in model:
                    raise self._error(
                        "variants", f"{spec} names its positions, and `positions` asks for each of several: drop one"
                    )
                name = f"{spec}, {position}" if len(positions) > 1 else spec
                slug = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-")
                found.append(
                    Entrant(name, slug, variant, options, model.pop("position_embedding_type", position), model)
                )
        slugs = [entrant.slug for entrant in found]
        if len(set(slugs)) < len(slugs):
            twice = next(entrant.name for entrant in found if slugs.count(entrant.slug) > 1)
            raise self._error("variants", f"{twice} stands there twice")
        return found

    def _check_questions(self) -> None:
        for values in self.file.questions:
            question: Question = self._section("questions", Question, values)
            for name in (question.model, *question.against):
                if name not in self.file.variants:
                    raise self._error(
                        "questions",
                        f"{name} is not among the variants: write it as there, {', '.join(self.file.variants)}",
                    )
            others = set(question.against) - {question.model}
            if not others or len(others) < len(question.against):
                raise self._error("questions", f"give others that {question.model} is compared with, each once")

    def _finetune(self, world: WorldSizes | None) -> tuple[dict[str, FinetuneRecipe], list[int], str | None]:
        values = dict(self.file.finetune)
        if not values:
            return {}, [], None
        names = values.pop("tasks", None)
        if not names:
            raise self._error("finetune", "tasks is missing, a list like [cola]")
        seeds, data = values.pop("seeds", 1), values.pop("data", None)
        tasks = self._at("finetune", lambda: parse_tasks(_listed(names)))
        if "ax" in tasks:
            raise self._error("finetune", "tasks: ax has no public labels, so that a study cannot score it: drop it")
        if data is None and world is not None and (foreign := [task for task in tasks if task not in BUILT_IN]):
            raise self._error(
                "finetune",
                f"tasks: the built-in world has no {', '.join(foreign)}; it has {', '.join(BUILT_IN)}. "
                "Give data: FOLDER for others",
            )
        if data is not None and not Path(data).is_dir():
            raise self._error("finetune", f"data: {data}: no such folder")
        for task in map(get_task, tasks if data is not None else ()):
            for split in (task.train, *task.validation):
                self._at("finetune", partial(require_split, Path(data), split))
        lines = self._lines("finetune")
        recipes = self._at("finetune", lambda: load_recipes_from(tasks, values, str(self.path), lines))
        return recipes, self._at("finetune", lambda: parse_seeds(_listed(seeds))), data

    def _robust(self, tasks: Mapping[str, Any]) -> Plan | None:
        values = dict(self.file.robust)
        if not values:
            return None
        if not tasks:
            raise self._error("robust", "needs finetune, whose models it tries")
        settings = self._section("robust", _Robust)

        def plan() -> Plan:
            return Plan(
                noises=parse_noises(_listed(settings.noise)),
                severities=parse_severities(_listed(settings.severity)),
                seeds=parse_seeds(_listed(settings.seeds)),
                domains=[] if settings.domains == "none" else parse_domains(_listed(settings.domains)),
                limit=settings.examples,
            )

        found = self._at("robust", plan)
        useless = [name for name in found.domains if not set(DOMAINS[name].tasks) & set(tasks)]
        if useless and "all" not in _listed(settings.domains).split(","):
            raise self._error("robust", f"domains: {', '.join(useless)}: for none of the tasks {', '.join(tasks)}")
        return found


@dataclass(frozen=True)
class _Robust:
    noise: str | tuple[str, ...] = "all"
    severity: str | tuple[int, ...] = "1-5"
    seeds: int | tuple[int, ...] = 1
    domains: str | tuple[str, ...] = "none"
    examples: int | None = None

    def __post_init__(self) -> None:
        if self.examples is not None and self.examples < 1:
            raise ValueError(f"examples must be at least 1, not {self.examples}")


def _listed(value: Any) -> str:
    """As the command line would have it: `1`, `a,b`, `7,`."""
    if not isinstance(value, list | tuple):
        return str(value)
    return ",".join(map(str, value)) + ("," if len(value) == 1 else "")
