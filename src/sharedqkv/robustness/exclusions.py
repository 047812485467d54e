"""Which text noises a task does not take, and why: those that can change the label of an example.

SST-2 takes all: a lost word may take the feeling with it, but seldom turns it. SQuAD 1.1 takes all, too: a lost word
may be evidence, but the question still has its answer in the text.
"""

from sharedqkv.robustness.text_noise import TEXT_NOISES


def _words(reason: str) -> dict[str, str]:
    return {"word_drop": reason, "word_swap": reason}


_FORM = "acceptability is a judgement on the form of a sentence, which every text noise changes"
_ENTAILMENT = "what follows from a sentence hangs on single words and their order"
_SIMILARITY = "whether two sentences mean the same hangs on single words and their order"
_ANSWERED = "whether a text answers a question hangs on single words and their order"
_PRONOUN = "the label hangs on a pronoun, and a damaged one may be another: she and he, they and the"

EXCLUSIONS = {
    "cola": dict.fromkeys(TEXT_NOISES, _FORM),
    "acceptability": dict.fromkeys(TEXT_NOISES, _FORM),
    "entailment": _words(_ENTAILMENT),
    "paraphrase": _words(_SIMILARITY),
    "similarity": _words(_SIMILARITY),
    "mnli": _words(_ENTAILMENT),
    "rte": _words(_ENTAILMENT),
    "wnli": dict.fromkeys(("keyboard", "swap", "drop", "insert", "repeat", "ocr", "whitespace"), _PRONOUN)
    | _words(_ENTAILMENT),
    "mrpc": _words(_SIMILARITY),
    "qqp": _words(_SIMILARITY),
    "stsb": _words(_SIMILARITY),
    "qnli": _words(_ANSWERED),
    "squad_v2": _words(_ANSWERED),
}
"""Task → noise → reason."""


def excluded(task: str, noise: str) -> str | None:
    """Why a task does not take a text noise; None where it does, as unknown tasks do."""
    if noise not in TEXT_NOISES:
        raise ValueError(f"unknown text noise {noise!r}; known are {', '.join(TEXT_NOISES)}")
    return EXCLUSIONS.get(task, {}).get(noise)
