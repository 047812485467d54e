import string

from sharedqkv.robustness.characters import CONFUSIONS, NEGATIONS, NEIGHBOURS


def test_keys_are_neighbours_of_each_other():
    assert sorted(NEIGHBOURS) == list(string.ascii_lowercase)
    for key, around in NEIGHBOURS.items():
        assert key not in around
        assert all(key in NEIGHBOURS[other] for other in around), key


def test_confusions_cover_every_letter_and_change_it():
    assert set(string.ascii_letters) <= set(CONFUSIONS)
    assert all(letters not in readings for letters, readings in CONFUSIONS.items())


def test_negations_are_plain_words():
    assert all(word.isalpha() and word.islower() for word in NEGATIONS)
    assert len(set(NEGATIONS)) == len(NEGATIONS)
