from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharedqkv.data.layouts import SHORT_PAIRS, RowFormat, chunk_rows, lay_out, pack_rows, pair_rows

PAD, CLS, SEP = 0, 2, 3
LENGTH = 16


def row_format(length=LENGTH):
    return RowFormat(length=length, dtype=np.dtype(np.uint16), pad=PAD, cls=CLS, sep=SEP)


def numbered(lengths, start=10):
    """Documents whose ids are all different, so that every token can be told where it came from."""
    ids = iter(range(start, 60000))
    return [np.array([next(ids) for _ in range(length)], np.uint16) for length in lengths]


def pieces_of(row):
    """A packed row, read token by token."""
    pieces, current = [], None
    for position, token in enumerate(row):
        if token == CLS:
            assert current is None
            current = []
        elif token == SEP:
            pieces.append(current)
            current = None
        elif token == PAD:
            assert current is None
            assert (row[position:] == PAD).all()
        else:
            current.append(int(token))
    assert current is None
    return pieces


lengths = st.lists(st.integers(0, 60), max_size=12)


@given(lengths)
def test_chunks_are_the_full_rows_of_each_document(sizes):
    documents = numbered(sizes)
    expected, dropped = [], 0
    for document in documents:
        tokens = document.tolist()
        while len(tokens) >= LENGTH - 2:
            expected.append([CLS, *tokens[: LENGTH - 2], SEP])
            tokens = tokens[LENGTH - 2 :]
        dropped += len(tokens)
    rows = chunk_rows(documents, row_format())
    assert rows.ids.tolist() == expected
    assert rows.ids.shape == (len(expected), LENGTH)
    assert rows.dropped_tokens == dropped


@given(lengths)
def test_packed_rows_hold_every_piece_once_and_are_filled_greedily(sizes):
    documents = numbered(sizes)
    width = LENGTH - 2
    expected = []
    for document in documents:
        tokens = document.tolist()
        expected += [tokens[start : start + width] for start in range(0, len(tokens), width)]
    # The slow literal form: the longest piece first, into the fullest row with room for it.
    slow: list[list[list[int]]] = []
    for piece in sorted(expected, key=len, reverse=True):
        space = [LENGTH - sum(len(other) + 2 for other in row) for row in slow]
        fitting = [(free, number) for number, free in enumerate(space) if free >= len(piece) + 2]
        if fitting:
            slow[min(fitting)[1]].append(piece)
        else:
            slow.append([piece])
    rows = pack_rows(documents, row_format())
    assert [pieces_of(row) for row in rows.ids] == slow
    assert sorted(piece for row in rows.ids for piece in pieces_of(row)) == sorted(expected)
    assert rows.dropped_tokens == 0


def test_packed_rows_are_nearly_full():
    chance = Random(0)
    rows = pack_rows([np.full(chance.randint(1, 400), 9, np.uint16) for _ in range(300)], row_format(128)).ids
    assert np.count_nonzero(rows == PAD) < 0.02 * rows.size


def literal_pairs(documents, length, random):
    """BERT's algorithm with plain lists."""
    most = length - 3
    cut = []
    for document in documents:
        sentences = []
        for sentence in document:
            tokens = sentence.tolist()
            step = most // 2 if len(tokens) > most else len(tokens)
            while tokens:
                sentences.append(tokens[:step])
                tokens = tokens[step:]
        if sentences:
            cut.append(sentences)
    rows, labels = [], []
    for number, document in enumerate(cut):
        rest = list(document)
        while rest:
            target = random.randint(2, most) if random.random() < SHORT_PAIRS else most
            chunk = [rest[0]]
            while len(chunk) < len(rest) and sum(map(len, chunk)) < target:
                chunk.append(rest[len(chunk)])
            a_end = 1 if len(chunk) == 1 else random.randint(1, len(chunk) - 1)
            a = [token for sentence in chunk[:a_end] for token in sentence]
            label = int(len(chunk) == 1 or random.random() < 0.5)
            if label:
                others = [n for n in range(len(cut)) if n != number] or [number]
                other = cut[others[random.randrange(len(others))]] if len(cut) > 1 else cut[0]
                place = random.randrange(len(other))
                b = list(other[place])
                for sentence in other[place + 1 :]:
                    if len(b) >= target - len(a):
                        break
                    b += sentence
                rest = rest[a_end:]
            else:
                b = [token for sentence in chunk[a_end:] for token in sentence]
                rest = rest[len(chunk) :]
            while len(a) + len(b) > most:
                longer = a if len(a) > len(b) else b
                longer.pop(0 if random.random() < 0.5 else -1)
            row = [CLS, *a, SEP, *b, SEP]
            rows.append(row + [PAD] * (length - len(row)))
            labels.append(label)
    return rows, labels


@given(st.lists(st.lists(st.integers(0, 40), max_size=8), max_size=6), st.integers(0, 1000))
def test_pairs_are_those_of_the_literal_algorithm(sizes, seed):
    ids = iter(range(10, 60000))
    documents = [[np.array([next(ids) for _ in range(n)], np.uint16) for n in sentences] for sentences in sizes]
    rows = pair_rows(documents, row_format(), Random(seed))
    expected, labels = literal_pairs(documents, LENGTH, Random(seed))
    assert rows.ids.tolist() == expected
    assert rows.next_sentence.tolist() == labels


def test_half_of_the_pairs_are_random_with_the_second_part_from_another_document():
    chance = Random(0)
    documents, owner, ids = [], {}, iter(range(10, 65000))
    for number in range(40):
        sentences = [[next(ids) for _ in range(chance.randint(2, 12))] for _ in range(60)]
        owner |= {token: number for sentence in sentences for token in sentence}
        documents.append([np.array(sentence, np.uint16) for sentence in sentences])
    rows = pair_rows(documents, row_format(64), Random(1))
    # A little over half: where a document ends with a single sentence, nothing can follow it.
    assert 0.48 < rows.next_sentence.mean() < 0.6
    for row, label in zip(rows.ids.tolist(), rows.next_sentence, strict=True):
        middle, end = (position for position, token in enumerate(row) if token == SEP)
        first, second = row[1:middle], row[middle + 1 : end]
        assert first
        assert second
        assert set(row[end + 1 :]) <= {PAD}
        same_document = owner[first[-1]] == owner[second[0]]
        assert same_document == (label == 0)
        if label == 0 and len(first) + len(second) < 61:
            assert second[0] == first[-1] + 1, "B goes on where A ends"


def test_a_block_of_one_document_still_gives_pairs_of_both_kinds():
    rows = pair_rows([numbered([5] * 100)], row_format(32), Random(0))
    assert 0.2 < rows.next_sentence.mean() < 0.8


@pytest.mark.parametrize("layout", ["chunks", "packed", "pairs"])
def test_no_documents_give_no_rows(layout):
    rows = lay_out(layout, [], row_format(), Random(0))
    assert rows.ids.shape == (0, LENGTH)
    assert rows.ids.dtype == np.uint16


def test_tokens_are_what_is_not_special():
    rows = np.array([[CLS, 7, 8, SEP, PAD], [CLS, 9, SEP, PAD, PAD]])
    assert row_format().tokens_in(rows) == 3
