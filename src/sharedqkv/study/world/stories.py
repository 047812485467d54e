"""Documents to pre-train on: stories in one mood about two people, so that what came before tells what comes."""

from sharedqkv.study.world.dice import Dice
from sharedqkv.study.world.grammar import PRONOUNS, Person, Speaker, finite, question, reaction, sentence, to_be
from sharedqkv.study.world.lexicon import HATE, LIKE, WORDS

EPISODES = 12
NEGATION = 0.1


def story(dice: Dice) -> str:
    """All words of the world occur in stories, so that words new to a task are not new to a pre-trained model."""
    speaker = Speaker(dice, WORDS, NEGATION)
    people = speaker.couple()
    is_good = dice.chance()
    texts = []
    for _ in range(EPISODES):
        first, second = dice.sample(people, 2)
        texts += dice.choice((_treatment, _opinion, _habit))(speaker, first, second, is_good)
    return " ".join(texts)


def _treatment(speaker: Speaker, agent: Person, patient: Person, is_good: bool) -> list[str]:
    """What one does to another, what that leads to, and often the same in other words or a question about it."""
    event = speaker.event(agent, patient, is_good)
    texts = [sentence(event.clause(speaker.turned()))]
    texts.append(sentence(f"so {reaction(patient.pronoun(), event.matter, is_good)}"))
    more = speaker.dice.choice(("again", "again", "question", "", ""))
    if more == "again":
        texts.append(sentence(event.reworded().with_pronouns().clause(speaker.turned())))
    if more == "question" and not (event.negated or event.gift):
        about_patient = speaker.dice.chance()
        texts += [question(event.verb, about_patient), sentence((patient if about_patient else agent).subject)]
    return texts


def _opinion(speaker: Speaker, person: Person, other: Person, is_good: bool) -> list[str]:
    """What something is like, and what somebody thinks of it."""
    thing, plural = speaker.thing()
    verb = finite(LIKE if is_good else HATE, person.plural)
    smiles = reaction(person.pronoun(), WORDS.matters[0], is_good)
    return [
        sentence(f"{thing} {to_be(plural)} {speaker.verdict(is_good)}"),
        sentence(f"so {person.subject} {verb} {'them' if plural else 'it'}"),
        sentence(smiles),
    ]


def _habit(speaker: Speaker, person: Person, other: Person, is_good: bool) -> list[str]:
    """What a passer-by, who is described, does in this mood and does to themselves."""
    person = Speaker(speaker.dice, speaker.words, NEGATION, depths=(1,)).person(person.kind)
    matter = speaker.dice.choice(speaker.words.matters)
    verb = finite(speaker.dice.choice(matter.verbs(is_good)), person.plural)
    pronoun, _, reflexive = PRONOUNS[person.kind]
    return [sentence(reaction(person, matter, is_good)), sentence(f"{pronoun} {verb} {reflexive}")]
