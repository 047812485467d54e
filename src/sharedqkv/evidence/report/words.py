"""Numbers as text, and the summary: who is better, by how much and how sure, what it saves, what cannot be told."""

from collections.abc import Callable, Sequence

from sharedqkv.evidence.comparison import FINETUNING, PRETRAINING, Comparison
from sharedqkv.evidence.report.collect import Study
from sharedqkv.evidence.report.document import Paragraph
from sharedqkv.evidence.report.measures import Measures
from sharedqkv.evidence.report.questions import asked
from sharedqkv.tasks.metrics import names_by_task

MINUS = "−"
_JOINED = "\N{NO-BREAK SPACE}"
"""Between a number and its unit."""
_LEARNED = 0.005
_SOLVED = 0.001
_MOST_NAMES = 6
"""In a sentence."""


def number(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.replace("-", "" if float(text) == 0 else MINUS)


def points(fraction: float) -> str:
    """Hundredths: 0.8412 → 84.1."""
    return number(100 * fraction, 1)


def percent(share: float) -> str:
    return f"{points(share)}{_JOINED}%"


def signed(text: str) -> str:
    return text if text.startswith(MINUS) else f"+{text}"


def with_std(mean: str, std: float | None, digits: int) -> str:
    return mean if std is None else f"{mean} ± {number(std, digits)}"


def rounded(count: float) -> str:
    """Three digits or more: 21,864 → 21.9 k."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= unit:
            size = count / unit
            return f"{size:.{max(0, 3 - len(str(int(size))))}f}{_JOINED}{name}"
    return f"{count:g}"


def several(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def p_value(p: float) -> str:
    return f"p{_JOINED}<{_JOINED}0.001" if p < 0.001 else f"p{_JOINED}={_JOINED}{p:.2g}"


def interval(bounds: tuple[float, float]) -> str:
    return f"{points(bounds[0])} to {points(bounds[1])}"


def difference(c: Comparison) -> str:
    """`−1.2 points (95 % interval −3.0 to 0.6)`, and the test where there can be one."""
    over = "" if c.counts_seeds else ", over examples only"
    text = f"{signed(points(c.difference))} points (95{_JOINED}% interval {interval(c.interval)}{over})"
    return f"{text}, {p_value(c.p_corrected)}" if c.could_be_called else text


def code(name: str) -> str:
    """A model's name in a sentence: names like `shared` are words, too."""
    return f"`{name}`"


def baseline_in_words(study: Study) -> str:
    """`standard`, or where there are several which one."""
    names = [code(name) for name in study.baselines]
    return names[0] if len(names) == 1 else f"the baseline that is most like it, {' or '.join(names)}"


def summary(measures: Measures) -> list[Paragraph]:
    focus = measures.study.focus
    paragraphs = [Paragraph(_what_was_done(measures)), Paragraph(_ranking(measures))]
    if focus is not None:
        paragraphs += [
            Paragraph(_quality_of(focus.name, measures)),
            Paragraph(_size_of(focus.name, measures)),
            Paragraph(_speed_of(focus.name, measures), timed=True),
            Paragraph(_against_narrow(focus.name, measures)),
            Paragraph(_robustness_of(focus.name, measures)),
        ]
    paragraphs += [Paragraph(_asked(measures)), Paragraph(_limits(measures), kind="note")]
    return [paragraph for paragraph in paragraphs if paragraph.text]


def _what_was_done(measures: Measures) -> str:
    study = measures.study
    runs = [run for mine in study.pretraining.values() for run in mine]
    if not runs:
        names = _names([entrant.name for entrant in study.entrants])
        return f"This study compares {names}. No model has been pre-trained yet."
    tokens = rounded(max(run.tokens for run in runs))
    text = f"{_who_was_pretrained(study)} with {_seeds_of_each(study)} on {tokens} tokens each"
    if measures.quality.chance:
        text += f" and fine-tuned on {counted(len(names_by_task(measures.quality.chance)), 'task')}"
    if len(study.baselines) > 1:
        return f"{text}. Each is compared with {baseline_in_words(study)}."
    return f"{text}. All are compared with {baseline_in_words(study)}."


def _names(models: Sequence[str]) -> str:
    return several([code(model) for model in models]) if len(models) <= _MOST_NAMES else f"{len(models)} models"


def _who_was_pretrained(study: Study) -> str:
    done, asked = list(study.pretraining), len(study.entrants)
    if len(done) == asked:
        return f"{_names(done)} were pre-trained"
    so_far = " so far" if study.info["state"] == "running" else ""
    named = f" ({_names(done)})" if len(done) <= _MOST_NAMES else ""
    return f"{len(done)} of {asked} models {'was' if len(done) == 1 else 'were'} pre-trained{so_far}{named},"


def _seeds_of_each(study: Study) -> str:
    numbers = {len(runs) for runs in study.pretraining.values()}
    most = counted(max(numbers), "seed")
    return most if len(numbers) == 1 else f"{min(numbers)} to {most}"


def _ranking(measures: Measures) -> str:
    quality = measures.quality
    means = {model: scores.scores_R.mean() for model, scores in quality.averages().items()}
    if len(means) < 2:
        return ""
    ranked = [f"{code(model)} {points(means[model])}" for model in sorted(means, key=lambda model: -means[model])]
    what = "Mean score over the tasks" if quality.average == "average" else f"Score ({quality.average})"
    first = "" if len(ranked) <= _MOST_NAMES else f"the first {_MOST_NAMES} of {len(ranked)}, "
    text = f"{what}, in points, {first}best first: {', '.join(ranked[:_MOST_NAMES])}."
    calls = [_calls_against(baseline, measures) for baseline in measures.study.baselines]
    return " ".join([text, *_not_learned(measures), *filter(None, calls)])


def _not_learned(measures: Measures) -> list[str]:
    """Where nobody knows more than which answer is the most frequent, or everybody knows all, scores tell nothing."""
    means = {
        task: [scores.scores_R.mean() for scores in measures.quality.scores[task].values()]
        for task in measures.quality.tasks
    }
    chance = measures.quality.chance
    unlearned = [code(task) for task, found in means.items() if max(found) <= chance[task] + _LEARNED]
    solved = [code(task) for task, found in means.items() if min(found) >= 1 - _SOLVED]
    constant = "the best constant answer by more than half a point"
    return [
        *([f"On {several(unlearned)} no model is above {constant}."] if unlearned else []),
        *([f"On {several(solved)} all models are at the ceiling and cannot be told apart."] if solved else []),
    ]


def _calls_against(baseline: str, measures: Measures) -> str:
    found = {model: c for (model, other), c in measures.quality.on_average.items() if other == baseline}
    better = [code(model) for model, c in found.items() if c.called and c.difference > 0]
    worse = [code(model) for model, c in found.items() if c.called and c.difference < 0]
    unclear = [code(model) for model, c in found.items() if c.could_be_called and not c.called]
    calls = [
        *([f"call {several(better)} better"] if better else []),
        *([f"call {several(worse)} worse"] if worse else []),
        *([f"show no difference for {several(unclear)}"] if unclear else []),
    ]
    return f"Against {code(baseline)} the tests {several(calls)}." if calls else ""


def _quality_of(model: str, measures: Measures) -> str:
    who, baseline = code(model), measures.study.baseline_of(model)
    if model not in measures.study.pretraining:
        return f"There is no finished pre-training of {who}."
    if baseline is None:
        return ""
    sentences = []
    if (c := measures.quality.on_average.get((model, baseline))) is not None:
        sentences.append(f"Against {code(baseline)}, {who} scores {difference(c)}.")
    if (c := measures.losses.get((model, baseline))) is not None:
        sentences.append(
            f"The loss of {who} on held-out text ends {_nats(c.difference)} "
            f"({number(c.mean_a, 3)} against {number(c.mean_b, 3)})."
        )
    return " ".join(sentences)


def _nats(difference: float) -> str:
    return f"{number(abs(difference), 3)} nats {'higher' if difference > 0 else 'lower'}"


def _size_of(model: str, measures: Measures) -> str:
    costs, baseline = measures.costs, measures.study.baseline_of(model)
    if baseline is None or model not in costs or baseline not in costs:
        return ""
    mine, theirs = costs[model], costs[baseline]
    parameters = 1 - mine.parameters.model / theirs.parameters.model
    flops = 1 - mine.flops_per_token / theirs.flops_per_token
    return (
        f"{code(model)} has {percent(abs(parameters))} {_fewer(parameters)} parameters than {code(baseline)} "
        f"({rounded(mine.parameters.model)} against {rounded(theirs.parameters.model)}) and needs "
        f"{percent(abs(flops))} {_fewer(flops)} FLOPs for a token."
    )


def _fewer(saved: float) -> str:
    return "fewer" if saved >= 0 else "more"


def _speed_of(model: str, measures: Measures) -> str:
    bench, saving = measures.study.bench, measures.time_saved.get(model)
    if bench is None or saving is None:
        return ""
    less = "less" if saving.median >= 0 else "more"
    return (
        f"Its training step takes {percent(abs(saving.median))} {less} time (saved in single repeats: "
        f"{percent(saving.low)} to {percent(saving.high)}; {bench.device})."
    )


def _against_narrow(model: str, measures: Measures) -> str:
    narrow = measures.study.rival_of(model, "narrow")
    if narrow is None:
        return ""
    found = []
    if (c := measures.quality.on_average.get((model, narrow))) is not None:
        found.append(f"scores {difference(c)}")
    if (c := measures.losses.get((model, narrow))) is not None:
        found.append(f"ends with a loss {_nats(c.difference)}")
    if not found:
        return ""
    return (
        f"The control that counts is {code(narrow)}, plain attention with about as few parameters: against it "
        f"{code(model)} {' and '.join(found)}."
    )


def _asked(measures: Measures) -> str:
    """What the study's own questions found."""
    averages, found = measures.quality.on_average, []
    for pairs in asked(measures.study):
        model = code(pairs[0][0])
        losses = [f"{_nats(c.difference)} than {code(p[1])}" for p in pairs if (c := measures.losses.get(p))]
        scores = [f"{difference(c)} against {code(p[1])}" for p in pairs if (c := averages.get(p))]
        found += [f"the loss of {model} ends {several(losses)}"] if losses else []
        found += [f"{model} scores {several(scores)}"] if scores else []
    return f"Asked besides: {'; '.join(found)}." if found else ""


def _robustness_of(model: str, measures: Measures) -> str:
    """What the tests call on all noises or all domains of a task."""
    analysis = measures.robustness.analysis
    main = [claim for claim in analysis.claims if claim.main and claim.comparison.model_a == model] if analysis else []
    if not main:
        return ""
    called = [
        f"{'better' if claim.comparison.difference > 0 else 'worse'} on {claim.subject}"
        for claim in main
        if claim.comparison.called
    ]
    who = f"{code(model)} and {code(main[0].comparison.model_b)}"
    tests = counted(len(main), "comparison")
    if not called:
        why = (
            "" if any(claim.comparison.could_be_called for claim in main) else ": there are too few seeds for any test"
        )
        return f"Under noise and on other domains, {tests} tell {who} apart nowhere{why}."
    return f"Under noise and on other domains, {len(called)} of {tests} tell {who} apart: {'; '.join(called)}."


def _limits(measures: Measures) -> str:
    """What cannot be told from this study, however the numbers look."""
    study, averages, losses = measures.study, list(measures.quality.on_average.values()), list(measures.losses.values())
    limits = []
    if averages:
        limits += _limits_of_seeds(averages, averages[0].unit, lambda gap: f"{points(gap)} points")
    elif losses:
        limits += _limits_of_seeds(losses, PRETRAINING, lambda gap: f"{number(gap, 3)} nats")
    single = [model for model, runs in study.pretraining.items() if len(runs) == 1]
    if 0 < len(single) < len(study.pretraining):
        limits.append(f"how far {_names(single)} would differ with another seed")
    if study.baseline.name in measures.costs:
        parameters = measures.costs[study.baseline.name].parameters.model
        limits.append(f"what holds for models of more than {rounded(parameters)} parameters, or on other text")
    return f"What cannot be told from this study: {'; '.join(limits)}." if limits else ""


def _limits_of_seeds(compared: Sequence[Comparison], unit: str, measured: Callable[[float], str]) -> list[str]:
    """The main comparison comes first."""
    main, limits = compared[0], []
    units = counted(main.units_a, unit)
    if not any(c.could_be_called for c in compared):
        limits.append(f"which differences are more than chance: {units} of each can call nothing")
    elif main.smallest_difference is not None:
        smallest = measured(main.smallest_difference)
        limits.append(f"differences under about {smallest}, which {units} of each would mostly miss")
    if main.unit == FINETUNING:  # also of losses, where both have a single pre-training seed
        limits.append("what holds for the variants and not just for these checkpoints, of one pre-training each")
    return limits
