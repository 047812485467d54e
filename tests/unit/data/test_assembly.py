import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharedqkv.data.assembly import EmptyCorpusError, plan_shards, shares_to_keep, thin, write_shard
from sharedqkv.data.layouts import RowFormat
from sharedqkv.data.sources import Source

ROW = RowFormat(length=4, dtype=np.dtype(np.uint16), pad=0, cls=1, sep=2)


def sources(*weights):
    return [Source(f"s{number}", "train", (), weight) for number, weight in enumerate(weights)]


def test_without_weights_everything_stays():
    assert thin([5, 0, 7], [0, 0, 1], shares_to_keep(sources(None, None), [5, 7])) == [5, 0, 7]


@given(
    weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=4),
    data=st.data(),
)
def test_weights_are_shares_of_the_rows_and_nobody_gives_more_than_it_has(weights, data):
    rows = [data.draw(st.integers(200, 5000)) for _ in weights]
    shares = shares_to_keep(sources(*weights), rows)
    kept = [keep for keep, _ in shares]
    assert all(0 < keep <= of == have for (keep, of), have in zip(shares, rows, strict=True))
    assert any(keep == have for keep, have in zip(kept, rows, strict=True)), "the scarcest source is used up"
    for keep, weight in zip(kept, weights, strict=True):
        exact = weight * min(have / w for have, w in zip(rows, weights, strict=True))
        assert abs(keep - exact) <= 1


@given(rows=st.lists(st.integers(0, 50), min_size=1, max_size=20), keep=st.integers(1, 10), more=st.integers(0, 10))
def test_thinning_is_even_and_adds_up(rows, keep, more):
    kept = thin(rows, [0] * len(rows), [(keep, keep + more)])
    assert sum(kept) == sum(rows) * keep // (keep + more)
    assert all(0 <= stay <= have for stay, have in zip(kept, rows, strict=True))


def test_a_source_without_rows_cannot_be_mixed():
    with pytest.raises(EmptyCorpusError, match="--source s1 gives not one row"):
        shares_to_keep(sources(1.0, 2.0), [10, 0])


def write_block(path, start, rows):
    ids = np.arange(start, start + rows * 4, dtype=np.uint16).reshape(rows, 4)
    np.savez(path, train_ids=ids, train_next_sentence=(np.arange(start, start + rows) % 2).astype(np.uint8))
    return ids


@pytest.mark.parametrize("rows_per_shard", [1, 4, 100])
def test_shards_hold_the_rows_in_order(tmp_path, rows_per_shard):
    paths = [tmp_path / f"block{number}.npz" for number in range(3)]
    expected = np.concatenate(
        [write_block(path, 100 * (n + 1), rows) for n, (path, rows) in enumerate(zip(paths, (5, 1, 3), strict=True))]
    )
    plan = list(plan_shards(paths, [5, 1, 3], [5, 1, 3], rows_per_shard))
    shards = [
        write_shard(tmp_path / f"train-{n:05}.npy", pieces, "train", ROW, 0, True, tmp_path)
        for n, pieces in enumerate(plan)
    ]
    assert all(shard.rows == rows_per_shard for shard in shards[:-1])
    np.testing.assert_array_equal(np.concatenate([np.load(tmp_path / shard.file.name) for shard in shards]), expected)
    labels = np.concatenate([np.load(tmp_path / shard.next_sentence.name) for shard in shards])
    assert labels.tolist() == [0, 1, 0, 1, 0, 0, 0, 1, 0]
    assert sum(shard.tokens for shard in shards) == 36


def test_thinned_blocks_give_some_of_their_rows_and_the_same_ones_for_any_shard_size(tmp_path):
    path = tmp_path / "block.npz"
    everything = {tuple(row) for row in write_block(path, 100, 50)}
    results = []
    for rows_per_shard in (7, 100):
        plan = plan_shards([path], [50], [20], rows_per_shard)
        files = [
            write_shard(tmp_path / f"train-{n}.npy", p, "train", ROW, 0, False, tmp_path).file
            for n, p in enumerate(plan)
        ]
        results.append(np.concatenate([np.load(tmp_path / file.name) for file in files]))
    np.testing.assert_array_equal(results[0], results[1])
    chosen = [tuple(row) for row in results[0]]
    assert len(chosen) == len(set(chosen)) == 20
    assert set(chosen) < everything
    assert chosen == sorted(chosen)
    assert chosen != sorted(everything)[:20]
