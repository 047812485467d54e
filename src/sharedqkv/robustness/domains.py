"""Sets from other domains, for models that are already fine-tuned: a table of them, and their scores."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sharedqkv.tasks.built_in import BUILT_IN
from sharedqkv.tasks.glue import GLUE, GlueTask
from sharedqkv.tasks.squad_metrics import token_f1
from sharedqkv.tasks.task import Record, Split, Task


@dataclass(frozen=True)
class HubCopy:
    repository: str
    config: str | None = None
    split: str = "test"
    texts: tuple[str, ...] = ()
    """Its names of the text columns, where they are not the task's."""
    label: str = "label"
    labels: tuple[str, ...] = ()
    """Its names of the classes, in their order, where they are not the domain's."""
    exported: bool = False
    """Whether the repository has a loading script, so that only the hub's Parquet export of it can be read."""


@dataclass(frozen=True)
class Domain:
    name: str
    tasks: tuple[str, ...]
    """Fine-tuned tasks it is for."""
    note: str
    """What a reader of its score must know."""
    hub: HubCopy | None
    """None where the hub has no copy that can be read."""
    split: str = "test"
    """In local files."""
    part_of: Split | None = None
    """Set where it is a split of the task itself, found where fine-tuning finds it."""
    labels: tuple[str, ...] = ()
    """Its classes, where they are not the task's."""
    edited: bool = False
    """Whether it holds edited versions of its own examples: `7-…` is a version of `7`. The worst version counts."""
    foreign_to: Split | None = None
    """Rows that share a sentence with this split are left out."""


_TWO_CLASSES = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")
_CAPTIONS = ("sentence_A", "sentence_B")
_LONG = "long reviews, cut at max_length"
_SICK = HubCopy("RobZamp/sick", "default", texts=_CAPTIONS, exported=True)


def _advglue(name: str, task: str) -> Domain:
    note = "adversarial rewrites of validation rows, chosen to mislead BERT-like models; so few that intervals are wide"
    hub = HubCopy("AI-Secure/adv_glue", f"adv_{name}", "validation")
    return Domain(f"advglue_{name}", (task,), note, hub, "validation")


def _reviews(kind: str, note: str = _LONG) -> Domain:
    return Domain(f"reviews_{kind}", ("sst2",), note, hub=None)


def _squad(name: str, note: str, hub: HubCopy, edited: bool) -> Domain:
    return Domain(name, ("squad", "squad_v2"), note, hub, "validation", edited=edited)


_DISTRACTED = (
    "a misleading sentence is added to the paragraphs of 1,000 validation questions; of several the worst counts"
)

DOMAINS = {
    domain.name: domain
    for domain in (
        Domain(
            "mnli_mismatched",
            ("mnli",),
            "genres that are not in train; officially 9,832 rows",
            HubCopy("nyu-mll/glue", "mnli", "validation_mismatched"),
            "validation_mismatched",
            part_of=Split("mnli", "validation_mismatched"),
        ),
        Domain(
            "snli",
            ("mnli",),
            "captions of photos; rows whose annotators did not agree are left out",
            HubCopy("stanfordnlp/snli", "plain_text", "validation"),
            "validation",
        ),
        Domain(
            "snli_counterfactual",
            ("mnli",),
            "SNLI rows edited until their label changed; the originals are not part of it",
            HubCopy("tasksource/counterfactually-augmented-snli", texts=_PAIR, label="gold_label"),
        ),
        Domain(
            "hans",
            ("mnli",),
            "two classes; made from templates where shared words mislead; copies regenerated from them are not the "
            "published rows",
            HubCopy("jhu-cogsci/hans", "plain_text", "validation", exported=True),
            labels=_TWO_CLASSES,
        ),
        Domain(
            "scitail",
            ("mnli",),
            "two classes; school science, its not-entailment is all neutral",
            HubCopy("allenai/scitail", "tsv_format", labels=("entails", "neutral")),
            labels=_TWO_CLASSES,
        ),
        Domain(
            "breaking_nli",
            ("mnli",),
            "SNLI premises with one word replaced; 87 % contradiction, 0.6 % neutral",
            HubCopy("pietrolesci/breaking_nli", split="full", texts=_PAIR),
        ),
        Domain("sick_entailment", ("mnli",), "captions, rewritten by rules; 57 % neutral", _SICK),
        _advglue("mnli", "mnli"),
        _advglue("mnli_mismatched", "mnli"),
        Domain("imdb", ("sst2",), _LONG, HubCopy("stanfordnlp/imdb", "plain_text", texts=("text",))),
        _reviews("airline"),
        _reviews("books"),
        _reviews("dvd", f"{_LONG}; partly of films, like SST-2"),
        _reviews("electronics"),
        Domain(
            "customer_reviews",
            ("sst2",),
            "sentences from reviews of products; 64 % positive",
            HubCopy("SetFit/CR", split="train+test", texts=("text",)),
        ),
        Domain(
            "yelp",
            ("sst2",),
            f"{_LONG}; the hub's are the 38,000 of yelp_polarity's test",
            HubCopy("fancyzhx/yelp_polarity", "plain_text", texts=("text",)),
        ),
        Domain(
            "imdb_contrast",
            ("sst2",),
            "film reviews that experts edited until the label changed; the score is of the edited ones",
            hub=None,
            edited=True,
        ),
        Domain(
            "imdb_counterfactual",
            ("sst2",),
            "as imdb_contrast and of nearly the same reviews, edited by crowd workers; the hub's copy has no originals",
            HubCopy(
                "tasksource/counterfactually-augmented-imdb",
                texts=("Text",),
                label="Sentiment",
                labels=("Negative", "Positive"),
            ),
            edited=True,
        ),
        _advglue("sst2", "sst2"),
        Domain(
            "paws_wiki",
            ("mrpc", "qqp"),
            "statements of nearly the same words, 56 % no paraphrases; for QQP no questions either",
            HubCopy("google-research-datasets/paws", "labeled_final"),
        ),
        _advglue("qqp", "qqp"),
        Domain(
            "sick_similarity",
            ("stsb",),
            "captions; its scale is 1–5 and not 0–5, so only correlations; rows that share a sentence with STS-B's "
            "train are left out",
            replace(_SICK, label="relatedness_score"),
            foreign_to=GLUE["stsb"].train,
        ),
        _advglue("qnli", "qnli"),
        _advglue("rte", "rte"),
        _squad(
            "squad_addsent",
            _DISTRACTED,
            HubCopy("stanfordnlp/squad_adversarial", "AddSent", "validation", exported=True),
            edited=True,
        ),
        _squad(
            "squad_addonesent",
            f"{_DISTRACTED} (here one, drawn at random)",
            HubCopy("stanfordnlp/squad_adversarial", "AddOneSent", "validation", exported=True),
            edited=True,
        ),
        _squad(
            "adversarial_qa",
            "questions that people wrote to defeat three models, on paragraphs of SQuAD's validation articles",
            HubCopy("UCLNLP/adversarial_qa", "adversarialQA", "validation"),
            edited=False,
        ),
        *(
            Domain(
                f"{task}_out_of_domain",
                (task,),
                "the built-in world with words that are not in the task's train, longer sentences and deeper nesting",
                hub=None,
                part_of=Split(task, "out_of_domain"),
            )
            for task in BUILT_IN
        ),
    )
}


def domains_for(task: str) -> list[Domain]:
    return [domain for domain in DOMAINS.values() if task in domain.tasks]


def parse_domains(text: str, tasks: Sequence[str] | None = None) -> list[str]:
    """`all`, or a list like `snli,hans`; where `tasks` are given, each that is named must be for one of them."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    expanded = [part for name in names for part in (DOMAINS if name == "all" else [name])]
    unknown = [name for name in expanded if name not in DOMAINS]
    if unknown or not names:
        raise ValueError(f"--domains: unknown {', '.join(unknown) or 'nothing'!r}; known: all, {', '.join(DOMAINS)}")
    for name in names:
        if tasks is not None and name != "all" and not set(tasks) & set(DOMAINS[name].tasks):
            suited = " or ".join(DOMAINS[name].tasks)
            raise ValueError(f"--domains: {name} is for models of {suited}, and the runs' tasks are {', '.join(tasks)}")
    return list(dict.fromkeys(expanded))


def counted_records(domain: Domain, task: Task, records: Sequence[Record]) -> list[Record]:
    """The records a score is made of, the same ids for every model, with predictions in the domain's classes."""
    if domain.labels:
        assert isinstance(task, GlueTask)
        records = [
            {**record, "prediction": int(task.labels[record["prediction"]] != "entailment")} for record in records
        ]
    if not domain.edited:
        return list(records)
    counted = []
    for original, versions in _by_original(records).items():
        edited = [record for record in versions if record["id"] != original]
        worst = min(edited or versions, key=_quality)
        counted.append({**worst, "id": original})
    return counted


def score_domain(domain: Domain, task: Task, records: Sequence[Record]) -> dict[str, float]:
    """The task's metrics, with `score`; for edited sets also the originals' score and how many pairs are both right."""
    split = task.validation[0]
    scores = task.score(split, counted_records(domain, task, records))
    if not domain.edited:
        return scores
    by_original = _by_original(records)
    originals = [record for record in records if record["id"] in by_original]
    if originals:
        scores["original_score"] = task.score(split, originals)["score"]
    pairs = [versions for versions in by_original.values() if len(versions) > 1]
    if pairs and isinstance(task, GlueTask):
        scores["both_right"] = float(np.mean([min(map(_quality, pair)) == 1 for pair in pairs]))
    return scores


def _by_original(records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record["id"].partition("-")[0], []).append(record)
    return found


def _quality(record: Record) -> float:
    """From 0 to 1; the gold answers of a question are a list."""
    label, prediction = record["label"], record["prediction"]
    return token_f1(prediction, label) if isinstance(label, list) else float(label == prediction)
