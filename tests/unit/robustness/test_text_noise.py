import hashlib
import itertools
import re
import time

import numpy as np
import pytest

from sharedqkv.robustness.text_noise import RATES, TEXT_NOISES, corrupt

NOISES = list(TEXT_NOISES)
LETTER_NOISES = ["keyboard", "swap", "drop", "insert", "repeat", "ocr"]
WORD_NOISES = ["word_drop", "word_swap", "word_repeat"]
SEVERITIES = range(1, len(RATES) + 1)
FAMILY = "👩‍👩‍👧"


def sentences(count: int) -> list[str]:
    subjects = ["The old sailor", "My neighbour's daughter", "A group of scientists", "Nobody", "The museum in Leipzig"]
    verbs = ["found", "did not believe", "carefully described", "won't sell", "has been looking for", "painted"]
    objects = ["the broken compass", "a letter from 1902", "three small islands", "any reason", "the famous picture"]
    ends = ["on a rainy morning.", "while everybody slept; it was late.", "because, as they said, time is short!"]
    all_of_them = list(itertools.product(subjects, verbs, objects, ends))
    return [" ".join(all_of_them[37 * number % len(all_of_them)]) for number in range(count)]


def distance(a: str, b: str) -> int:
    """Levenshtein's."""
    letters, steps = np.array([*map(ord, b)]), np.arange(len(b) + 1)
    row = steps
    for letter in map(ord, a):
        best = np.minimum(row[1:] + 1, row[:-1] + (letters != letter))
        row = np.minimum.accumulate(np.concatenate([[row[0] + 1], best]) - steps) + steps
    return int(row[-1])


def test_the_distance():
    pairs = [("kitten", "sitting"), ("abcd", "bacd"), ("abc", ""), ("same", "same"), ("ab", "xaby")]
    assert [distance(a, b) for a, b in pairs] == [3, 2, 3, 0, 2]


def edit_rate(noise: str, severity: int) -> float:
    texts = sentences(150)
    edits = sum(distance(text, corrupt(text, noise, severity, 0, str(n)).text) for n, text in enumerate(texts))
    return edits / sum(map(len, texts))


@pytest.mark.parametrize("noise", [*LETTER_NOISES, "casing", "whitespace"])
def test_the_mean_edit_rate_is_that_of_the_severity(noise):
    for severity, rate in zip(SEVERITIES, RATES, strict=True):
        lowest = 0.88 * rate if noise == "swap" else rate - 0.004  # many swaps look like fewer edits
        assert lowest < edit_rate(noise, severity) < rate + 0.004, f"severity {severity}"


@pytest.mark.parametrize("noise", ["word_drop", "word_repeat"])
def test_lost_and_doubled_words_hold_the_share_of_the_severity(noise):
    texts = sentences(450)
    for severity, rate in zip(SEVERITIES, RATES, strict=True):
        changes = [len(corrupt(text, noise, severity, 0, str(n)).text) - len(text) for n, text in enumerate(texts * 4)]
        assert abs(sum(changes)) / sum(map(len, texts * 4)) == pytest.approx(rate, abs=0.004)


def test_swapped_words_are_closer_than_the_characters_they_hold():
    for severity, rate in zip(SEVERITIES, RATES, strict=True):
        assert 0.6 * rate < edit_rate("word_swap", severity) < rate


def test_a_text_can_lose_no_more_punctuation_than_it_has():
    texts = sentences(150)
    editable = sum(len(re.findall(r"[.,;!]|(?<!n)'", text)) for text in texts) / sum(map(len, texts))
    assert edit_rate("punctuation", 1) == pytest.approx(RATES[0], abs=0.004)
    assert edit_rate("punctuation", 5) == pytest.approx(editable)
    assert editable < RATES[2]


@pytest.mark.parametrize("noise", ["keyboard", "drop", "insert", "repeat", "casing"])
def test_the_mean_holds_in_short_texts(noise):
    edits = [distance("word", corrupt("word", noise, 2, seed).text) for seed in range(4000)]
    assert np.mean(edits) / 4 == pytest.approx(RATES[1], abs=0.005)


@pytest.mark.parametrize("noise", [name for name in NOISES if name != "casing"])
@pytest.mark.parametrize(
    "kept",
    ["not", "can't", "won’t", "cannot", "Nobody", "without", "HARDLY", "n't", "dont", "3", "1,500", "2.50", "B2B"],
)
def test_what_carries_the_label_is_never_touched(noise, kept):
    for seed in range(40):
        corrupted = corrupt(f"he said it was {kept} worth, as it is", noise, 5, seed).text
        assert re.search(rf"(?<!\w){re.escape(kept)}(?!\w)", corrupted), corrupted


@pytest.mark.parametrize(
    ("noise", "text"),
    [
        ("swap", "on on on so"),
        ("drop", "knot know note snow"),
        ("insert", "o nt or on"),
        ("whitespace", "notable another north no-w"),
        ("keyboard", "bo mo ho jor"),
        ("ocr", "ri uo hot nof I l O S"),
        ("punctuation", "n.o so, do.nt"),
    ],
)
def test_no_negation_or_number_is_made(noise, text):
    made = re.compile(r"(?<!\w)(no|not|non|nor|cannot|cant|dont|\d+)(?!\w)")
    before = made.findall(text)
    results = {corrupt(text, noise, 5, seed).text for seed in range(300)}
    assert results != {text}
    assert all(made.findall(result) == before for result in results)


@pytest.mark.parametrize("noise", WORD_NOISES)
def test_word_noises_leave_what_is_negated_or_counted_in_its_place(noise):
    text = "we did not like this very long film but 7 people left early"
    results = [corrupt(text, noise, 5, seed).text for seed in range(200)]
    assert len(set(results)) > 5
    for words in map(str.split, results):
        assert words[words.index("not") + 1] == "like"
        assert words[words.index("7") + 1] == "people"
        assert words.count("like") == words.count("people") == 1


@pytest.mark.parametrize(
    ("noise", "text", "expected"),
    [
        ("keyboard", "Aa", {"Qa", "Wa", "Sa", "Za", "Aq", "Aw", "As", "Az", "Aa"}),
        ("swap", "abc", {"bac", "acb", "abc"}),
        ("drop", "abc", {"bc", "ac", "ab", "abc"}),
        ("repeat", "abc", {"aabc", "abbc", "abcc", "abc"}),
        ("ocr", "ark", {"ork", "erk", "ank", "arlc", "ark"}),
        ("ocr", "corn", {"eorn", "oorn", "c0rn", "ccrn", "com", "coru", "corri", "corn"}),
        ("word_drop", "one two, three", {"two, three", "one, three", "one two,", "one two, three"}),
        ("word_swap", "one two, three four", {"two one, three four", "one two, four three", "one two, three four"}),
        ("word_repeat", "one two.", {"one one two.", "one two two.", "one two."}),
        ("word_swap", "one\n two", {"two\n one", "one\n two"}),
        ("casing", "aBß", {"ABß", "abß", "aBß"}),
        ("casing", "not", {"Not", "nOt", "noT", "not"}),
        ("punctuation", "It's. $5!", {"Its. $5!", "It's $5!", "It's. $5!"}),
        ("whitespace", "an ox", {"anox", "a n ox", "an o x", "an ox"}),
        ("whitespace", "  ", {"  "}),
        ("whitespace", "! \u0301", {"! \u0301"}),
    ],
)
def test_single_edits(noise, text, expected):
    """All that can come out where there is room for one edit."""
    assert {corrupt(text, noise, 3, seed).text for seed in range(1500)} == expected


def test_every_seed_and_key_has_a_stream_of_its_own():
    text, keys = "The sailor found the broken compass while everybody slept", ("", "1/question", "2/question")
    assert len({corrupt(text, "drop", 4, seed, key).text for seed in range(10) for key in keys}) == 30


@pytest.mark.parametrize("noise", [*LETTER_NOISES, *WORD_NOISES, "whitespace"])
def test_marks_stay_with_their_letters_and_emoji_whole(noise):
    emoji = f"{FAMILY} 👍🏽 🇪🇺 ❤️ #️⃣"
    text = f"cafe\u0301 e\u0301te\u0301 {emoji} re\u0301sume\u0301 bien{FAMILY} su\u0308ß"
    for seed in range(50):
        corrupted = corrupt(text, noise, 5, seed).text
        assert emoji in corrupted or noise == "whitespace"
        assert not re.search("[^e]\u0301|[^u]\u0308", corrupted)
        assert corrupted.count("\u200d") == 2 * corrupted.count("👧"), "no family is torn apart"


def test_other_scripts():
    unknown = ("keyboard", "ocr")
    for text in ("Привет мир, как дела сегодня", "سلام دنیا حال شما چطور است", "नमस्ते दुनिया आप कैसे हैं"):
        for noise in NOISES:
            changed = any(corrupt(text, noise, 5, seed).text != text for seed in range(10))
            has_cases_and_marks = "П" in text
            assert changed == (noise not in unknown and (has_cases_and_marks or noise not in ("casing", "punctuation")))


SPAN_TEXT = "In 1902 the writer Anna Schmidt moved to Leipzig, where she did not stay."
ANSWERS = ["Anna Schmidt", "Schmidt", "Anna Schmidt", "Leipzig", "writer Anna", "1902", "not", SPAN_TEXT]


@pytest.mark.parametrize("noise", NOISES)
def test_answers_move_along(noise):
    spans = [(SPAN_TEXT.index(answer), SPAN_TEXT.index(answer) + len(answer)) for answer in ANSWERS]
    results = [corrupt(SPAN_TEXT, noise, 5, seed, spans=spans) for seed in range(100)]
    found = [[result.text[start:end] for start, end in result.spans] for result in results]
    for answers in found:
        assert all(answers)
        assert answers[0] == answers[2]
        assert answers[0].endswith(answers[1])
        assert answers[5:7] == ["1902", "not"] or noise == "casing"
    keeps_places = noise in ("keyboard", "swap", "word_swap", "casing")
    assert any(result.spans != tuple(spans) for result in results) != keeps_places


def test_an_insertion_at_a_border_is_outside():
    for seed in range(50):
        corrupted = corrupt("ab cd", "insert", 5, seed, spans=[(0, 2), (3, 4), (4, 5)])
        answers = [corrupted.text[start:end] for start, end in corrupted.spans]
        assert re.fullmatch("a.?b", answers[0])
        assert answers[1:] == ["c", "d"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("text", "typo", 1, 0), "unknown text noise 'typo'; known are keyboard, swap, drop, insert, repeat, ocr"),
        (("text", "drop", 6, 0), "unknown severity 6; known are 0 .no noise. to 5"),
        (("text", "drop", -1, 0), "unknown severity -1"),
        (("text", "drop", 0, 0, "", [(2, 5)]), r"span \(2, 5\) does not lie in its text of 4 characters"),
        (("text", "drop", 1, 0, "", [(3, 2)]), r"span \(3, 2\)"),
        (("text", "drop", 1, 0, "", [(-1, 2)]), r"span \(-1, 2\)"),
    ],
)
def test_wrong_inputs_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        corrupt(*arguments)


@pytest.mark.parametrize("noise", NOISES)
def test_speed(noise):
    """A tenth of what is promised, 10,000 sentences in 10 s."""
    texts = sentences(1000)
    start = time.process_time()
    for number, text in enumerate(texts):
        corrupt(text, noise, 5, 0, str(number))
    assert time.process_time() - start < 1


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("snippet", ["a sentence, ", "on ", "a", " ", "!", "n't ", "e\u0301", "7 ", FAMILY])
def test_a_hundred_thousand_characters(noise, snippet):
    text = snippet * (100_000 // len(snippet))
    start = time.process_time()
    corrupted = corrupt(text, noise, 1, 0, spans=[(0, 1), (10, len(text) - 10)])
    assert time.process_time() - start < 5
    assert corrupted.text


def test_the_same_everywhere():
    """The hash was taken on Linux with Python 3.11: any other platform or version must give it, too."""
    made_up = [*sentences(8), f"Cafe\u0301 {FAMILY} größer, не 12 % — سلام!", SPAN_TEXT, "漢字とかな", "I", ""]
    digest = hashlib.sha256()
    for text, noise, severity, seed in itertools.product(made_up, NOISES, range(6), (0, 1)):
        corrupted = corrupt(text, noise, severity, seed, f"{seed}/key", [(0, len(text) // 2)])
        digest.update(repr((corrupted.text.encode(), corrupted.spans)).encode())
    assert digest.hexdigest() == "98e246e20d9f667de73bdd841ec134d723237b4178f528f3e6343eb7d6ecdbf7"
