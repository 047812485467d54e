"""The BERT WordPiece tokenizer: loaded or trained, its hash, and a fast exact way to encode much text."""

import hashlib
import json
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ALPHABET_SIZE = 1000
"""BERT's limit: rarer characters are unknown to a trained vocabulary."""
SMALLEST_VOCABULARY = len(SPECIAL_TOKENS) + 1
"""Of any text: it has at least one character."""
LONGEST_WORD = 100
"""BERT's limit: longer words are unknown."""

_PUNCTUATION = re.escape(string.punctuation)
_WORD = re.compile(rf"[^ \t\n\r{_PUNCTUATION}]{{1,1000}}|[{_PUNCTUATION}]")
"""BERT's tokenizer always splits at white space and ASCII punctuation, so that such words can be encoded one by one.
A run of over 1000 characters with neither is cut, to keep memory bounded."""


def load_tokenizer(name: str, cased: bool = False) -> Any:
    """From a vocab.txt, a folder or a hub id. `cased` is for a bare vocab.txt: the others know it themselves."""
    from transformers import AutoTokenizer, BertTokenizer

    path = Path(name)
    if path.is_dir() and not any((path / file).exists() for file in ("tokenizer.json", "tokenizer_config.json")):
        path = path / "vocab.txt"
        if not path.exists():
            raise ValueError(f"tokenizer {name}: the folder holds neither tokenizer.json nor vocab.txt")
    if path.is_file():
        tokenizer = BertTokenizer(vocab=_read_vocabulary(path), do_lower_case=not cased)
    else:
        try:
            tokenizer = AutoTokenizer.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"tokenizer {name}: not a vocab.txt, not a folder with a tokenizer, nor to be had from the hub: {error}"
            ) from error
    _check_kind(tokenizer, name)
    return tokenizer


def _read_vocabulary(path: Path) -> dict[str, int]:
    try:
        tokens = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a vocabulary: {error}") from error
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        twice = next(token for token, count in Counter(tokens).items() if count > 1)
        raise ValueError(f"{path}: {twice!r} occurs twice; a vocabulary has one token a line, each once")
    missing = [token for token in SPECIAL_TOKENS if token not in vocabulary]
    if missing:
        raise ValueError(
            f"{path}: not a BERT vocabulary, {' '.join(missing)} missing. "
            "Give a vocab.txt with one token a line, or the folder of a tokenizer"
        )
    return vocabulary


def _check_kind(tokenizer: Any, name: str) -> None:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    parts = [type(getattr(backend, part, None)).__name__ for part in ("model", "normalizer", "pre_tokenizer")]
    if parts != ["WordPiece", "BertNormalizer", "BertPreTokenizer"]:
        raise ValueError(
            f"tokenizer {name}: needed is a BERT WordPiece tokenizer, this one is made of {', '.join(parts)}"
        )
    for role in ("pad", "unk", "cls", "sep", "mask"):
        if getattr(tokenizer, f"{role}_token_id") is None:
            raise ValueError(f"tokenizer {name}: it has no {role} token, which masked language modelling needs")


def tokenizer_hash(tokenizer: Any) -> str:
    """sha256 over all that determines ids, and over nothing else (padding, truncation, templates)."""
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    added = [(token["id"], token["content"]) for token in backend["added_tokens"]]
    parts = {"added_tokens": added, **{part: backend[part] for part in ("normalizer", "pre_tokenizer", "model")}}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def train_tokenizer(texts: Iterable[str], vocab_size: int, cased: bool = False) -> Any:
    """A WordPiece vocabulary of `vocab_size`, the special tokens first. The same texts give the same vocabulary.

    The library's trainer numbers characters inside words (`##x`) as its hash map happens to bring them, and breaks
    ties by those numbers; so they are given to it numbered, as if they were special tokens.
    """
    from transformers import BertTokenizer

    words, alphabet, inner = _words_and_characters(texts, vocab_size, cased)
    if not words:
        raise ValueError("cannot train a tokenizer: the corpus holds no word")
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[*SPECIAL_TOKENS, *inner],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    learner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator(_repeated(words), trainer)
    return BertTokenizer(vocab=learner.get_vocab(), do_lower_case=not cased)


def check_vocab_size(texts: Iterable[str], vocab_size: int, cased: bool = False) -> None:
    """Refuse a size that cannot hold even the characters of these texts, which may be a few of a corpus."""
    alphabet = {character for word in _count_words(texts, cased) for character in word}
    _require_room(vocab_size, min(len(alphabet), ALPHABET_SIZE))


def _require_room(vocab_size: int, characters: int, inside_words: int | None = None) -> None:
    smallest = len(SPECIAL_TOKENS) + characters + (inside_words or 0)
    if vocab_size < smallest:
        parts = f"{len(SPECIAL_TOKENS)} special tokens, {characters} characters"
        parts += " and some inside words" if inside_words is None else f" and {inside_words} inside words"
        raise ValueError(
            f"--train-vocab-size {vocab_size} is too small for this text: give at least {smallest}, for {parts}; some "
            "thousands are usual"
        )


def _words_and_characters(
    texts: Iterable[str], vocab_size: int, cased: bool
) -> tuple[dict[str, int], list[str], list[str]]:
    """Words with their counts, the characters they are made of, and those inside words as tokens: `##x`."""
    counts = _count_words(texts, cased)
    characters = Counter[str]()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    alphabet = set(sorted(characters, key=lambda c: (-characters[c], c))[:ALPHABET_SIZE])
    words = {word: count for word, count in sorted(counts.items()) if alphabet.issuperset(word)}
    inner = sorted({f"##{character}" for word in words for character in word[1:]})
    _require_room(vocab_size, len(alphabet), len(inner))
    return words, sorted(alphabet), inner


def _count_words(texts: Iterable[str], cased: bool) -> Counter[str]:
    """How often each word occurs, after BERT's normalisation."""
    from transformers import BertTokenizer

    backend = BertTokenizer(do_lower_case=not cased).backend_tokenizer
    raw = Counter[str]()
    for text in texts:
        raw.update(_WORD.findall(text))
    counts = Counter[str]()
    while raw:
        raw_word, count = raw.popitem()
        normalised = backend.normalizer.normalize_str(raw_word.encode("utf-8", "replace").decode())
        for word, _ in backend.pre_tokenizer.pre_tokenize_str(normalised):
            if len(word) <= LONGEST_WORD:
                counts[word] += count
    return counts


def _repeated(counts: Mapping[str, int]) -> Iterator[str]:
    """Every word as often as it was counted, as the trainer takes no counts; in short texts, as it copies them."""
    for word, count in counts.items():
        for done in range(0, count, 1000):
            yield f"{word} " * min(1000, count - done)


class WordEncoder:
    """Text to ids, several times faster than the tokenizer itself: every distinct word is encoded once and remembered.

    Special tokens are never made from text: a document that speaks of "[SEP]" gets the ids of "[", "sep" and "]".
    """

    WORDS_AT_ONCE = 1000
    REMEMBERED_CHARACTERS = 1_000_000
    """About 150,000 words and 30 MB; then all is forgotten."""

    def __init__(self, tokenizer: Tokenizer):
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self.dtype = np.dtype(np.uint16 if tokenizer.get_vocab_size() <= 1 << 16 else np.uint32)
        self._ids_of: dict[str, bytes] = {}
        self._characters = 0

    def encode(self, texts: Iterable[str]) -> list[np.ndarray]:
        words_of = [_WORD.findall(text) for text in texts]
        if self._characters > self.REMEMBERED_CHARACTERS:
            self._ids_of, self._characters = {}, 0
        self._learn(list(set().union(*words_of) - self._ids_of.keys()))
        ids_of = self._ids_of.__getitem__
        return [np.frombuffer(b"".join(map(ids_of, words)), dtype=self.dtype) for words in words_of]

    def _learn(self, words: Sequence[str]) -> None:
        for start in range(0, len(words), self.WORDS_AT_ONCE):
            batch = words[start : start + self.WORDS_AT_ONCE]
            encoding = self._tokenizer.encode(batch, is_pretokenized=True, add_special_tokens=False)
            ids = np.array(encoding.ids, dtype=self.dtype).tobytes()
            word_of_id = np.array(encoding.word_ids, dtype=np.int64)
            bounds = np.searchsorted(word_of_id, np.arange(len(batch) + 1)) * self.dtype.itemsize
            for word, begin, end in zip(batch, bounds.tolist(), bounds[1:].tolist(), strict=False):
                self._ids_of[word] = ids[begin:end]
            self._characters += sum(map(len, batch))
