import json
import random
import string

import pytest

from sharedqkv.data import sources


@pytest.fixture(scope="session")
def words():
    """A made-up language of 400 words, none of them a part of the alphabet alone."""
    chance = random.Random(1)
    syllables = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeiou"]
    return sorted({"".join(chance.choices(syllables, k=chance.randint(2, 4))) for _ in range(400)})


@pytest.fixture(scope="session")
def make_documents(words):
    def make(count, sentences=12, seed=0):
        chance = random.Random(seed)

        def sentence():
            text = " ".join(chance.choices(words, k=chance.randint(3, 14)))
            return text.capitalize() + chance.choice([".", ".", "!", "?", " (so)."])

        return [" ".join(sentence() for _ in range(chance.randint(1, 2 * sentences))) for _ in range(count)]

    return make


@pytest.fixture(scope="session")
def vocabulary(words, tmp_path_factory):
    """A vocab.txt that knows half of the words whole and spells the others."""
    characters = [*string.ascii_lowercase, *string.digits, *string.punctuation]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{c}" for c in string.ascii_lowercase)]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join([*tokens, *words[::2]]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def write_jsonl():
    def write(path, documents):
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8")
        return path

    return write


@pytest.fixture
def small_blocks(monkeypatch):
    """Many blocks out of little text."""
    monkeypatch.setattr(sources, "BLOCK_CHARACTERS", 10_000)
