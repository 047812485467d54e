"""Lines and texts as rows of a task."""

import pytest

from sharedqkv.tasks.predict import rows_from_lines, rows_from_texts


def test_lines_of_one_text_keep_their_tabs_and_lose_empty_ones():
    rows = list(rows_from_lines(["a\tb\n", "\n", "c\r\n"], ["sentence"], "here"))
    assert rows == [{"sentence": "a\tb"}, {"sentence": "c"}]


def test_lines_of_two_texts_are_cut_at_the_tab():
    assert list(rows_from_lines(["a\tb"], ["question", "context"], "here")) == [{"question": "a", "context": "b"}]
    with pytest.raises(ValueError, match=r"here, line 2: expected 2 texts \(question, context\), not 1"):
        list(rows_from_lines(["a\tb", "a b"], ["question", "context"], "here"))


def test_texts_must_be_as_many_as_the_task_has():
    assert rows_from_texts(["a"], ["sentence"], "--text") == {"sentence": "a"}
    with pytest.raises(ValueError, match="--text: expected 1 texts"):
        rows_from_texts(["a", "b"], ["sentence"], "--text")
