import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharedqkv.data.sentences import split_sentences


@given(st.text(alphabet=st.sampled_from('aB .!?\n"”。1')))
def test_nothing_is_lost_and_no_sentence_is_empty(text):
    sentences = split_sentences(text)
    assert "".join(sentences) == text
    assert all(sentences)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One. ", "Two! ", "Three? ", "Four"]),
        ('He said "no." Then he left.', ['He said "no." ', "Then he left."]),
        ("Mr. Fox met J. S. Bach at 3.14 p.m. sharp.", ["Mr. Fox met J. S. Bach at 3.14 p.m. sharp."]),
        ("A title\nA text. More", ["A title\n", "A text. ", "More"]),
        ("一つ。二つ！", ["一つ。", "二つ！"]),
        ("Wait... what? 42 is it.", ["Wait... what? ", "42 is it."]),
    ],
)
def test_examples(text, expected):
    assert split_sentences(text) == expected
