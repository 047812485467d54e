"""Tasks in the image of GLUE and SQuAD. In each of them a label hangs on how words are put together, not on which."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from sharedqkv.study.world.dice import Dice
from sharedqkv.study.world.grammar import PRONOUNS, Event, Speaker, finite, question, reaction, sentence, to_be
from sharedqkv.study.world.lexicon import WORDS

Row = dict[str, Any]
SPLITS = ("train", "validation", "out_of_domain")
NEGATION = 0.25
_VALIDATION_SHARE = 5
"""One text in so many is kept for validation."""
_MOST_MISSES = 2000
"""Rows drawn in vain before a split counts as exhausted."""


def _acceptability(speaker: Speaker, label: int) -> Row:
    """A verb or a reflexive that agrees with the subject, or does not. Alone, no form of either is the rarer one."""
    dice = speaker.dice
    matter = dice.choice(speaker.words.matters)
    if dice.chance():
        person = speaker.person(dice.choice(("man", "woman", "many", "many")))
        predicate = finite(matter.reaction(dice.chance()), person.plural == bool(label))
    else:
        person = speaker.person(dice.choice(tuple(PRONOUNS)))
        verb = finite(dice.choice(matter.verbs(dice.chance())), person.plural)
        kinds = [kind for kind in PRONOUNS if (kind == person.kind) == bool(label)]
        predicate = f"{verb} {PRONOUNS[dice.choice(kinds)][2]}"
    return {"sentence": sentence(f"{person.subject} {predicate}"), "label": label}


def _sentiment(speaker: Speaker, label: int) -> Row:
    """Opinions turned round by `not`, `but` and `though`."""
    thing, plural = speaker.thing()
    return {"sentence": sentence(f"{thing} {to_be(plural)} {speaker.verdict(bool(label))}"), "label": label}


def _paraphrase(speaker: Speaker, label: int) -> Row:
    """The same event told another way, or with its roles swapped or the opposite done."""
    event = speaker.event(*speaker.couple(), speaker.dice.chance())
    other = event.reworded()
    if not label:
        other = other.swapped() if speaker.dice.chance() else replace(other, is_kind=not other.is_kind)
    turned = speaker.turned()
    also_turned = turned if speaker.dice.chance(0.2) else not turned
    return {
        "sentence1": sentence(event.clause(turned)),
        "sentence2": sentence(other.clause(also_turned)),
        "label": label,
    }


def _similarity(speaker: Speaker, label: int) -> Row:
    """How many of five things are the same: who, to whom, the deed, whether it is denied, and who is at the place."""
    dice = speaker.dice
    plain = replace(speaker, depths=(0,))
    place = speaker.place(speaker.depth() + 1)
    event = plain.event(*plain.couple(), dice.chance(), gifts=0)
    costs = {"swap": 2, "deed": 1, "denial": 1, "place": 1}
    subsets = [set(chosen) for size in range(5) for chosen in combinations(costs, size)]
    changes = dice.choice([chosen for chosen in subsets if sum(costs[name] for name in chosen) == 5 - label])
    other = event.reworded()
    if "swap" in changes:
        other = other.swapped()
    other = replace(other, is_kind=other.is_kind != ("deed" in changes), negated=other.negated != ("denial" in changes))
    at_agent = dice.chance()
    events = (_placed(event, place, at_agent), _placed(other, place, at_agent != ("place" in changes)))
    first, second = (sentence(placed.clause(speaker.turned())) for placed in events)
    return {"sentence1": first, "sentence2": second, "label": float(label)}


def _placed(event: Event, place: str, at_agent: bool) -> Event:
    if at_agent:
        return replace(event, agent=event.agent.at(place))
    return replace(event, patient=event.patient.at(place))


def _entailment(speaker: Speaker, label: int) -> Row:
    """What somebody does because of an event: as the person it was done to must, or as another, or the opposite."""
    event = speaker.event(*speaker.couple(), speaker.dice.chance())
    person, is_good = event.patient, event.is_good
    if label:
        if speaker.dice.chance(0.75):
            person = event.agent
        else:
            is_good = not is_good
    return {
        "sentence1": sentence(event.clause(speaker.turned())),
        "sentence2": sentence(reaction(person.pronoun(), event.matter, is_good)),
        "label": label,
    }


def _span_qa(speaker: Speaker, about_patient: int) -> Row:
    """Who does something to somebody, or to whom it is done; another sentence names a third person."""
    dice = speaker.dice
    while True:
        event = replace(speaker.event(*speaker.couple(), dice.chance(), gifts=0), negated=False)
        third = reaction(speaker.person(speaker.kind()), dice.choice(speaker.words.matters), dice.chance())
        texts = [sentence(event.clause(speaker.turned())), sentence(third)]
        context = " ".join(dice.sample(texts, 2))
        answer = (event.patient if about_patient else event.agent).subject
        if context.lower().count(answer) == 1:
            break
    start = context.lower().index(answer)
    full = context[start : start + len(answer)]
    accepted = list(dict.fromkeys((full, " ".join(full.split()[:2]))))  # the king who …, or just the king
    return {
        "context": context,
        "question": question(event.verb, bool(about_patient)),
        "answers": {"text": accepted, "answer_start": [start] * len(accepted)},
    }


@dataclass(frozen=True)
class _Task:
    make: Callable[[Speaker, int], Row]
    labels: int = 2
    """Rows take them in turn."""
    depths: tuple[int, ...] = (0,)
    new_depths: tuple[int, ...] = (1,)
    """In out-of-domain rows."""


_TASKS = {
    "acceptability": _Task(_acceptability, depths=(0, 1), new_depths=(2, 3)),
    "sentiment": _Task(_sentiment),
    "paraphrase": _Task(_paraphrase),
    "similarity": _Task(_similarity, labels=6),
    "entailment": _Task(_entailment),
    "span_qa": _Task(_span_qa),
}
TASKS = tuple(_TASKS)


def task_rows(seed: int, name: str, split: str) -> Iterator[Row]:
    """Different rows without end, or rather until the world has no more; how many are taken changes none of them."""
    if name not in _TASKS:
        raise ValueError(f"no task {name!r}: the world has {', '.join(TASKS)}")
    if split not in SPLITS:
        raise ValueError(f"no split {split!r}: tasks of the world have {', '.join(SPLITS)}")
    task = _TASKS[name]
    is_new = split == "out_of_domain"
    words, depths = (WORDS.new(), task.new_depths) if is_new else (WORDS.familiar(), task.depths)
    speaker = Speaker(Dice(seed, name, split), words, NEGATION, depths)
    seen: set[str] = set()
    number = misses = 0
    while misses < _MOST_MISSES:
        row = task.make(speaker, number % task.labels)
        texts = [value for value in row.values() if isinstance(value, str)]
        key = "\n".join(texts)
        if key in seen or (not is_new and _is_for_validation(texts[0]) != (split == "validation")):
            misses += 1
            continue
        seen.add(key)
        identity = {"id": f"{split}-{number}"} if name == "span_qa" else {"idx": number}
        yield {**identity, **row}
        number, misses = number + 1, 0
    raise ValueError(f"{name}, {split}: the world has but some {number} different rows; ask for fewer")


def _is_for_validation(text: str) -> bool:
    """Decided by the text alone, so that train never holds it."""
    return zlib.crc32(text.encode()) % _VALIDATION_SHARE == 0
