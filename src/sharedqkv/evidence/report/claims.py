"""The paper's claims beside what the study measured, each with a verdict and what it rests on.

"Does Self-Attention Need Separate Weights in Transformers?", Kowsher et al., arXiv 2412.00359 and NAACL 2025.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sharedqkv.accounting.savings import paper_claims
from sharedqkv.evidence.comparison import PRETRAINING, Comparison, over_family, reach
from sharedqkv.evidence.report.document import Cell, Table, Verdict
from sharedqkv.evidence.report.measures import Measures, unit_scores
from sharedqkv.evidence.report.words import code, counted, difference, percent, points, several, signed
from sharedqkv.evidence.robustness import Claim
from sharedqkv.evidence.runs import RunScores
from sharedqkv.tasks.registry import answers_are_spans

_COUNTING_ERROR = 0.0002
"""Shares of parameters are quoted to a hundredth of a percent, cut off or rounded."""
_TENTH = 0.05
"""From here on a saving rounds to "around one-tenth"."""


@dataclass(frozen=True)
class Finding:
    claim: str
    measured: str
    verdict: Verdict
    rests_on: str
    timed: bool = False


def findings(measures: Measures) -> list[Finding]:
    return [
        *_parameters(measures),
        _training_time(measures),
        *_scores(measures),
        _span_tasks(measures),
        _robust(measures, "Under noise it is more robust than standard BERT", "noise", of_noise=True),
        _robust(measures, "Out of domain it is better than standard BERT", "other domains", of_noise=False),
    ]


def claims_table(measures: Measures) -> Table:
    found = findings(measures)
    rows = [
        (
            Cell(finding.claim),
            Cell(finding.verdict, verdict=True, timed=finding.timed),
            Cell(finding.measured, timed=finding.timed),
            Cell(finding.rests_on),
        )
        for finding in found
    ]
    return Table(
        name="claims",
        caption="What the paper says of sharing one weight, and what this study finds",
        columns=("claim", "verdict", "measured here", "rests on"),
        rows=rows,
        records=[
            {
                "claim": finding.claim,
                "measured": finding.measured,
                "verdict": finding.verdict,
                "rests on": finding.rests_on,
            }
            for finding in found
            if not finding.timed
        ],
        prose=True,
    )


def _parameters(measures: Measures) -> Iterator[Finding]:
    """Arithmetic on BERT-base, of which the paper speaks; the study's own models beside it."""
    shared, standard = (measures.study.entrant(variant) for variant in ("shared", "standard"))
    mine, theirs = (measures.costs.get(entrant.name) if entrant else None for entrant in (shared, standard))
    for paper, claimed, part in zip(paper_claims(), (0.6653, 0.1294), ("qkv", "model"), strict=True):
        here = ""
        if mine is not None and theirs is not None:
            here = f"; {percent(1 - getattr(mine.parameters, part) / getattr(theirs.parameters, part))} in this study"
        yield Finding(
            claim=paper["paper"],
            measured=f"{100 * paper['measured']:.2f} % in BERT-base{here}",
            verdict="holds" if abs(paper["measured"] - claimed) < _COUNTING_ERROR else "does not hold",
            rests_on=f"Counted: {paper['counts']}; {paper['explanation']}",
        )


def _training_time(measures: Measures) -> Finding:
    claim = "Training takes around one-tenth less time (elsewhere 15 to 20 %)"
    study, shared = measures.study, measures.study.entrant("shared")
    saving = measures.time_saved.get(shared.name) if shared else None
    if study.baseline.variant != "standard" or shared is None or saving is None or study.bench is None:
        return Finding(claim, "–", "not tested here", "No timing of both models in this study.")
    verdict: Verdict = "cannot be told"
    if saving.low >= _TENTH:
        verdict = "holds"
    elif saving.high < _TENTH:
        verdict = "does not hold"
    measured = f"{percent(saving.median)} less for a training step ({points(saving.low)} to {points(saving.high)})"
    rests_on = (
        f"{counted(len(study.bench.entrants[shared.name].train_step_s), 'timed repeat')} of each model in turns, "
        f"{study.bench.rows} rows of {study.bench.length} tokens on {study.bench.device}; 5 % or more in every repeat "
        "counts as a tenth."
    )
    return Finding(claim, measured, verdict, rests_on, timed=True)


def _scores(measures: Measures) -> Iterator[Finding]:
    for variant, claimed, text in (
        ("standard", 0.0038, "GLUE: 0.38 points over `standard` (arXiv only)"),
        ("symmetric", 0.0355, "GLUE: 5.81 points over `symmetric` (arXiv), 3.55 (NAACL)"),
        ("pairwise", 0.0089, "GLUE: 1.06 points over `pairwise` (arXiv), 0.89 (NAACL)"),
        ("narrow", None, "Not in the paper: better than `narrow`, plain attention with as many parameters"),
    ):
        shared, other = measures.study.entrant("shared"), measures.study.entrant(variant)
        quality, averages = measures.quality, measures.quality.averages()
        if quality.averaged and all(map(answers_are_spans, quality.averaged)):
            yield Finding(text, "–", "not tested here", "No task of this kind in this study.")
        elif shared is None or other is None or not {shared.name, other.name} <= averages.keys():
            yield Finding(text, "–", "not tested here", "No scores of both models in this study.")
        elif (c := quality.on_average.get((shared.name, other.name))) is not None:
            tasks = several([code(task) for task in quality.averaged])
            yield Finding(text, difference(c), judge(c, claimed), f"{_rests_on({'': c})}; {tasks}.")
        else:
            yield _described(text, averages[shared.name], averages[other.name])


def _described(claim: str, mine: RunScores, theirs: RunScores) -> Finding:
    """Where there is no comparison."""
    seeds, rivals_seeds = len(mine.pretrainings), len(theirs.pretrainings)
    if min(seeds, rivals_seeds) > 1:
        return Finding(claim, "–", "not tested here", "These two are not compared in this study.")
    rests_on = (
        f"{counted(seeds, PRETRAINING)} of {code(mine.model)} and {rivals_seeds} of {code(theirs.model)}: from a "
        "single one the spread is unknown, so no interval and no test."
    )
    measured = f"{signed(points(unit_scores(mine).mean() - unit_scores(theirs).mean()))} points"
    return Finding(claim, measured, "cannot be told", rests_on)


def judge(c: Comparison, claimed: float | None = None) -> Verdict:
    """Of the claim that A is better than B, by so much where a figure was claimed."""
    if c.called:
        return "holds" if c.difference > 0 else "does not hold"
    ruled_out = claimed is not None and c.could_be_called and c.interval[1] < claimed
    return "does not hold" if ruled_out else "cannot be told"


def _rests_on(found: Mapping[str, Comparison]) -> str:
    """Seeds, the least p and what would have been found, by what was compared; once where it is the same for all."""
    told = [_once({name: tell(c) for name, c in found.items()}) for tell in (_seeds, _least_p, _reach)]
    return "; ".join(text for text in told if text)


def _seeds(c: Comparison) -> str:
    alike = c.units_a == c.units_b
    seeds = f"{counted(c.units_a, c.unit)} of each" if alike else f"{c.units_a} and {c.units_b} {c.unit}s"
    return f"{seeds}, {c.runs_a} and {c.runs_b} fine-tuned models"


def _least_p(c: Comparison) -> str:
    least = f"{c.smallest_p_corrected:.2g}{over_family(c)}"
    return f"p can fall to {least}" if c.could_be_called else f"too few for any test: p cannot fall below {least}"


def _reach(c: Comparison) -> str:
    return reach(c) if c.could_be_called else ""  # that there is none has been said


def _once(told: Mapping[str, str]) -> str:
    if len(set(told.values())) == 1:
        return next(iter(told.values()))
    return "; ".join(f"{name}: {text}" for name, text in told.items() if text)


def _span_tasks(measures: Measures) -> Finding:
    claim = "SQuAD: small declines (tested is any decline)"
    found = _on_span_tasks(measures)
    if not found or measures.study.baseline.variant != "standard":
        return Finding(claim, "–", "not tested here", "No task of this kind in this study.")
    declines = [_opposite(judge(c)) for c in found.values()]
    measured = "; ".join(f"{code(task)}: {difference(c)}" for task, c in found.items())
    rests_on = f"{_rests_on({code(task): c for task, c in found.items()})}."
    return Finding(claim, measured, together(declines), rests_on)


def _on_span_tasks(measures: Measures) -> dict[str, Comparison]:
    """Task → `shared` against its baseline; a single task of a study is its average."""
    shared, quality = measures.study.entrant("shared"), measures.quality
    if shared is None:
        return {}
    compared = {task: c for (task, model), c in quality.by_task.items() if model == shared.name}
    if (only := quality.on_average.get((shared.name, measures.study.baseline.name))) is not None:
        compared[quality.average] = only
    return {task: c for task, c in compared.items() if answers_are_spans(task)}


def _opposite(verdict: Verdict) -> Verdict:
    swapped: dict[Verdict, Verdict] = {"holds": "does not hold", "does not hold": "holds"}
    return swapped.get(verdict, verdict)


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Of a claim that is tested several times: it must hold everywhere, and falls with one counterexample."""
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if set(verdicts) == {"holds"} else "cannot be told"


def _robust(measures: Measures, claim: str, what: str, of_noise: bool) -> Finding:
    shared, baseline = measures.study.entrant("shared"), measures.study.baseline
    analysis = measures.robustness.analysis
    found: list[Claim] = []
    if analysis is not None and shared is not None and baseline.variant == "standard":
        found = [
            claim
            for claim in analysis.claims
            if claim.main
            and claim.under_noise == of_noise
            and (claim.comparison.model_a, claim.comparison.model_b) == (shared.name, baseline.name)
        ]
    if not found:
        return Finding(claim, "–", "not tested here", f"No comparison under {what} in this study.")
    measured = "; ".join(f"{claim.subject}: {difference(claim.comparison)}" for claim in found)
    compared = {claim.subject: claim.comparison for claim in found}
    rests_on = f"{_rests_on(compared)}; measured is the {found[0].measure}."
    return Finding(claim, measured, together([_verdict_of(claim) for claim in found]), rests_on)


def _verdict_of(claim: Claim) -> Verdict:
    for verdict in ("holds", "does not hold"):
        if claim.verdict.startswith(verdict):
            return verdict
    return "cannot be told"
