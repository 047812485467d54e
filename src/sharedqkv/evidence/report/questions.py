"""Who is compared with whom, and which comparisons are corrected together: told by the study's file, not by results."""

from collections.abc import Mapping, Sequence

from sharedqkv.evidence.report.collect import Study

Pair = tuple[str, str]
"""A model, and against whom."""
RIVALS = ("symmetric", "pairwise", "narrow")
"""Variants that the study's focus is compared with besides the baseline."""


def against_baseline(study: Study) -> list[list[Pair]]:
    """Every model against its baseline; each baseline, for each kind of positions, is a question, so a family."""
    families: dict[tuple[str, str], list[Pair]] = {}
    for entrant in study.entrants:
        if (baseline := study.baseline_of(entrant.name)) is not None:
            question = (baseline, entrant.position_embedding_type)
            families.setdefault(question, []).append((entrant.name, baseline))
    return list(families.values())


def main_and_others(study: Study) -> list[list[Pair]]:
    """As `against_baseline`, but that the study's focus against its baseline is a family of its own, the first."""
    families = against_baseline(study)
    main = (study.focus.name, study.baseline_of(study.focus.name)) if study.focus else None
    others = [[pair for pair in family if pair != main] for family in families]
    alone = [pair for family in families for pair in family if pair == main]
    return [family for family in [alone, *others] if family]


def awaited(study: Study, family: Sequence[Pair], seeds: Mapping[str, int]) -> int:
    """How many of the family cannot be compared with so many pre-training seeds of each model, and will be when all
    cells are done. They count in a correction: else what is called today would not be when the study is finished."""
    planned = {
        entrant.name: sum(name.startswith(f"pretrain/{entrant.slug}/") for name in study.info["cells"])
        for entrant in study.entrants
    }
    return sum(_comparable(planned, pair) and not _comparable(seeds, pair) for pair in family)


def _comparable(seeds: Mapping[str, int], pair: Pair) -> bool:
    """From one seed against several nothing can be told."""
    a, b = (seeds.get(model, 0) for model in pair)
    return min(a, b) > 0 and (a == 1) == (b == 1)


def questions(study: Study, main_rivals: tuple[str, ...] = ()) -> list[list[Pair]]:
    """Families, the main one first: the study's focus against its baseline and against these rivals.

    The others follow by baseline and positions, together with the focus against all its rivals; last, what the study
    asks besides.
    """
    focus = study.focus
    if focus is None or (baseline := study.baseline_of(focus.name)) is None:
        return []
    main = list(dict.fromkeys([(focus.name, baseline), *_against(study, focus.name, main_rivals)]))
    of_focus = [entrant.name for entrant in study.entrants if entrant.same_but_for_positions(focus)]
    families = [main]
    for family in against_baseline(study):
        rivals = [pair for model, _ in family if model in of_focus for pair in _against(study, model, RIVALS)]
        families.append([pair for pair in dict.fromkeys([*family, *rivals]) if pair not in main])
    for family in asked(study):
        before = {frozenset(pair) for earlier in families for pair in earlier}
        families.append([pair for pair in family if frozenset(pair) not in before])
    return [family for family in families if family]


def asked(study: Study) -> list[list[Pair]]:
    """The study's own questions, each a family for each kind of positions that `positions` asks for."""
    endings = dict.fromkeys(entrant.name.removeprefix(entrant.spec) for entrant in study.entrants)
    return [
        [(question["model"] + ending, other + ending) for other in question["against"]]
        for question in study.info.get("study", {}).get("questions", ())
        for ending in endings
    ]


def _against(study: Study, model: str, variants: tuple[str, ...]) -> list[Pair]:
    rivals = [study.rival_of(model, variant) for variant in variants]
    return [(model, rival) for rival in rivals if rival is not None]
