import numpy as np
import pytest

from sharedqkv.data.masking import Masking, Vocabulary
from sharedqkv.models.losses import IGNORED

PAD, CLS, SEP, MASK = 0, 2, 3, 4
SIZE = 1000


@pytest.fixture
def vocabulary():
    continues = np.zeros(SIZE, dtype=bool)
    continues[500:] = True
    return Vocabulary(MASK, np.arange(5), np.arange(5, SIZE), continues)


def make_rows(batch: int, length: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).integers(5, SIZE, (batch, length))
    rows[:, 0], rows[:, -1] = CLS, SEP
    return rows


def test_fifteen_percent_in_the_proportions_of_bert(vocabulary):
    rows = make_rows(2000, 128)
    inputs, positions, labels = Masking(vocabulary, seed=0)(rows, np.arange(2000))
    assert positions.shape == labels.shape == (2000, 19), "round(0.15 · 126)"
    assert (labels != IGNORED).all()
    assert (np.take_along_axis(rows, positions, axis=1) == labels).all()
    shown = np.take_along_axis(inputs, positions, axis=1)
    shares = {
        "masked": (shown == MASK).mean(),
        "kept": (shown == labels).mean(),
        "other": ((shown != MASK) & (shown != labels)).mean(),
    }
    assert shares == {
        "masked": pytest.approx(0.8, abs=0.01),
        "kept": pytest.approx(0.1, abs=0.01),
        "other": pytest.approx(0.1, abs=0.01),
    }
    assert (inputs != rows).sum() <= positions.size


def test_only_chosen_tokens_change_and_never_special_ones(vocabulary):
    rows = make_rows(200, 64)
    rows[:, 30] = SEP
    rows[:, 50:] = PAD
    inputs, positions, labels = Masking(vocabulary, seed=0, share=0.4)(rows, np.arange(200))
    chosen = np.zeros_like(rows, dtype=bool)
    for row in range(200):
        chosen[row, positions[row][labels[row] != IGNORED]] = True
    assert (inputs == rows)[~chosen].all()
    assert not np.isin(rows[chosen], np.arange(5)).any()
    assert not np.isin(inputs[chosen], [PAD, CLS, SEP]).any()


def test_all_positions_are_equally_likely(vocabulary):
    rows = make_rows(4000, 34)
    _, positions, _ = Masking(vocabulary, seed=0)(rows, np.arange(4000))
    counts = np.bincount(positions.ravel(), minlength=34)[1:-1]
    assert np.abs(counts / counts.mean() - 1).max() < 0.2


def test_a_row_depends_on_nothing_but_its_number_and_the_seed(vocabulary):
    rows, numbers = make_rows(50, 40), np.arange(1000, 1050)
    masking = Masking(vocabulary, seed=7)
    together = masking(rows, numbers)
    for row in (0, 13, 49):
        alone = masking(rows[row : row + 1], numbers[row : row + 1])
        for one, other in zip(alone, together, strict=True):
            assert (one[0] == other[row]).all()
    assert (masking(rows, numbers + 1)[1] != together[1]).any()
    assert (Masking(vocabulary, seed=8)(rows, numbers)[1] != together[1]).any()


def test_short_rows_have_fewer_targets(vocabulary):
    rows = make_rows(1, 42)
    rows[0, 11:] = PAD  # ten tokens are left
    _, positions, labels = Masking(vocabulary, seed=0, share=0.2)(rows, np.arange(1))
    assert labels.shape == (1, 8)
    assert (labels != IGNORED).sum() == 2
    assert not positions[labels == IGNORED].any()


def test_a_row_without_tokens_has_no_target(vocabulary):
    inputs, _, labels = Masking(vocabulary, seed=0)(np.full((1, 16), PAD), np.arange(1))
    assert (labels == IGNORED).all()
    assert (inputs == PAD).all()


def test_whole_words_are_taken_whole(vocabulary):
    rows = make_rows(500, 100)
    _, positions, labels = Masking(vocabulary, seed=0, share=0.3, whole_words=True)(rows, np.arange(500))
    cut, words = 0, 0
    for row in range(500):
        chosen = set(positions[row][labels[row] != IGNORED].tolist())
        assert len(chosen) == round(0.3 * 98)
        starts = [column for column in range(1, 99) if column == 1 or rows[row, column] < 500]
        for start, end in zip(starts, [*starts[1:], 99], strict=True):
            inside = len(chosen & set(range(start, end)))
            words += inside > 0
            cut += 0 < inside < end - start
    assert cut <= 500, "at most the last word of a row is cut off"
    assert words > 3000


def test_words_do_not_reach_across_special_tokens(vocabulary):
    """A piece that begins with ## after [SEP] or [CLS] belongs to no word before it."""
    rows = np.array([[CLS, 10, SEP, 600, 601, SEP]] * 200)
    order = Masking(vocabulary, seed=0, whole_words=True)._word_order(
        rows, ~np.isin(rows, np.arange(5)), np.random.default_rng(0).random(rows.shape)
    )
    assert (order[:, 3] == order[:, 4]).all()
    assert (order[:, 3] != order[:, 1]).all()


def test_vocabulary_of_a_tokenizer():
    from transformers import BertTokenizer

    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "##s"]
    vocabulary = Vocabulary.of(BertTokenizer(vocab={token: index for index, token in enumerate(tokens)}))
    assert vocabulary.mask_id == 4
    assert vocabulary.ordinary_ids.tolist() == [5, 6]
    assert vocabulary.continues_word.tolist() == [False] * 6 + [True]
