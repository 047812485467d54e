import numpy as np
import pytest

from sharedqkv.data import deduplication
from sharedqkv.data.deduplication import document_hash, find_duplicates


@pytest.mark.parametrize("at_once", [3, 50, 10_000])
def test_all_but_the_first_are_found_whatever_the_share_held_in_memory(monkeypatch, at_once):
    monkeypatch.setattr(deduplication, "DOCUMENTS_AT_ONCE", at_once)
    chance = np.random.default_rng(0)
    blocks = [[b"%d" % number for number in chance.integers(0, 60, size)] for size in (40, 0, 1, 80)]
    hashes = [np.frombuffer(b"".join(map(document_hash, block)), np.uint8).reshape(-1, 16) for block in blocks]
    seen, expected = set(), []
    for place, text in enumerate(text for block in blocks for text in block):
        if text in seen:
            expected.append(place)
        seen.add(text)
    shares = list(find_duplicates(hashes.__getitem__, len(blocks), 121))
    assert sorted(np.concatenate(shares).tolist()) == expected
    assert all((np.diff(share) > 0).all() for share in shares)
    assert len(shares) == -(-121 // at_once)


def test_hashes_that_differ_in_either_half_are_different():
    hashes = np.zeros((3, 16), np.uint8)
    hashes[1, 0] = hashes[2, 15] = 1
    assert next(find_duplicates(lambda block: hashes, 1, 3)).tolist() == []
