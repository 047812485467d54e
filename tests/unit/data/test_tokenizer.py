import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from sharedqkv.data.tokenizer import (
    SPECIAL_TOKENS,
    WordEncoder,
    check_vocab_size,
    load_tokenizer,
    tokenizer_hash,
    train_tokenizer,
)

NASTY = [
    "",
    " \t\n ",
    "[CLS] of [MASK] and [SEP]",
    "Crème brûlée, naïve façade — “quoted” don't re-enter",
    "e\u0301 \u0301x =\u0338 a\u200db a\u00adb \ufeffx",
    "foo\x1cbar\x00baz\x85qux\u2028line\u3000wide\xa0space",
    "東京は日本の首都です。ＦＵＬＬ　ｗｉｄｔｈ",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 🤗👩‍👩‍👧 \U0001f600 \ufffd",
    "ΣΊΣΥΦΟΣ İstanbul ǅ ﬁne",
    "a" * 150 + " " + "b" * 99,
    "x_y/z\\w|v~u`t^s@r#q$p%",
]


@pytest.fixture(scope="module", params=[False, True], ids=["uncased", "cased"])
def tokenizer(request, vocabulary):
    return load_tokenizer(str(vocabulary), cased=request.param)


def ids_by_the_tokenizer(tokenizer, text):
    """The tokenizer's own ids; it splits special tokens like other text when told so."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.encode_special_tokens = True
    return backend.encode(text, add_special_tokens=False).ids


def test_words_one_by_one_give_the_ids_of_the_tokenizer(tokenizer):
    encoder = WordEncoder(tokenizer.backend_tokenizer)
    for text, ids in zip(NASTY, encoder.encode(NASTY), strict=True):
        assert ids.tolist() == ids_by_the_tokenizer(tokenizer, text), text


@given(text=st.text(max_size=60))
@settings(max_examples=300, deadline=None)
def test_words_one_by_one_give_the_ids_of_the_tokenizer_on_any_text(tokenizer, text):
    assert WordEncoder(tokenizer.backend_tokenizer).encode([text])[0].tolist() == ids_by_the_tokenizer(tokenizer, text)


def test_special_tokens_in_text_are_text(tokenizer):
    ids = WordEncoder(tokenizer.backend_tokenizer).encode(["see [SEP] and [PAD], [CLS]"])[0]
    assert not {tokenizer.sep_token_id, tokenizer.pad_token_id, tokenizer.cls_token_id} & set(ids.tolist())


def test_forgetting_words_changes_nothing(tokenizer, make_documents, monkeypatch):
    documents = make_documents(40)
    expected = WordEncoder(tokenizer.backend_tokenizer).encode(documents)
    monkeypatch.setattr(WordEncoder, "REMEMBERED_CHARACTERS", 100)
    monkeypatch.setattr(WordEncoder, "WORDS_AT_ONCE", 7)
    forgetful = WordEncoder(tokenizer.backend_tokenizer)
    for document, ids in zip(documents, expected, strict=True):
        np.testing.assert_array_equal(forgetful.encode([document])[0], ids)
    assert len(forgetful._ids_of) < 200


def test_ids_are_as_narrow_as_the_vocabulary_allows():
    for size, dtype in ((65536, np.uint16), (65537, np.uint32)):
        vocabulary = {"[UNK]": 0, **{f"w{number}": number for number in range(1, size)}}
        encoder = WordEncoder(Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]")))
        assert encoder.encode([f"w{size - 1}"])[0].dtype == dtype
        assert encoder.encode([f"w{size - 1}"])[0].tolist() == [size - 1]


def test_loading_from_a_file_a_folder_and_a_folder_with_only_a_vocabulary(vocabulary, tmp_path):
    from_file = load_tokenizer(str(vocabulary))
    from_file.save_pretrained(tmp_path / "saved")
    hashes = {tokenizer_hash(load_tokenizer(str(path))) for path in (tmp_path / "saved", vocabulary.parent)}
    assert hashes == {tokenizer_hash(from_file)} == {tokenizer_hash(AutoTokenizer.from_pretrained(tmp_path / "saved"))}
    assert from_file.tokenize("BANA") == load_tokenizer(str(vocabulary)).tokenize("bana")


def test_lower_casing_is_of_the_vocabulary_file_unless_cased(vocabulary):
    assert load_tokenizer(str(vocabulary)).tokenize("Ab") == ["a", "##b"]
    assert load_tokenizer(str(vocabulary), cased=True).tokenize("Ab") == ["[UNK]"]


def test_the_hash_knows_what_determines_ids_and_nothing_else(vocabulary, tmp_path):
    tokenizer = load_tokenizer(str(vocabulary))
    before = tokenizer_hash(tokenizer)
    tokenizer(["a", "b c d"], padding=True, truncation=True, max_length=3)
    assert tokenizer_hash(tokenizer) == before
    other = tmp_path / "vocab.txt"
    lines = vocabulary.read_text(encoding="utf-8").splitlines()
    other.write_text("\n".join([*lines[:-2], lines[-1], lines[-2]]), encoding="utf-8")
    hashes = {
        before,
        tokenizer_hash(load_tokenizer(str(vocabulary), cased=True)),
        tokenizer_hash(load_tokenizer(str(other))),
    }
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("lines", "message"),
    [(["[PAD]", "[UNK]", "a"], r"\[CLS\] \[SEP\] \[MASK\] missing"), ([*SPECIAL_TOKENS, "a", "a"], "'a' occurs twice")],
)
def test_vocabularies_that_are_none(tmp_path, lines, message):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"vocab.txt: .*{message}"):
        load_tokenizer(str(path))


def test_other_kinds_of_tokenizers_are_refused(tmp_path):
    specials = dict(zip(SPECIAL_TOKENS, range(5), strict=True))
    other = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(vocab=specials, merges=[])))
    other.save_pretrained(tmp_path / "bpe")
    with pytest.raises(ValueError, match="BERT WordPiece tokenizer, this one is made of BPE"):
        load_tokenizer(str(tmp_path / "bpe"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty: the folder holds neither tokenizer.json nor vocab.txt"):
        load_tokenizer(str(tmp_path / "empty"))


def test_training_gives_the_same_vocabulary_every_time(make_documents):
    """The library's trainer alone does not: it numbers `##x` in the order of a hash map."""
    documents = [*make_documents(30), "Été 東京 🤗"]
    vocabularies = [train_tokenizer(documents, 400).get_vocab() for _ in range(6)]
    assert all(vocabulary == vocabularies[0] for vocabulary in vocabularies)
    assert len(vocabularies[0]) == 400


def test_a_trained_tokenizer_is_a_bert_tokenizer(make_documents, tmp_path):
    documents = make_documents(50)
    tokenizer = train_tokenizer(documents, 500)
    assert [tokenizer.get_vocab()[token] for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    assert sorted(tokenizer.get_vocab().values()) == list(range(500))
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer_hash(loaded) == tokenizer_hash(tokenizer)
    assert loaded.unk_token_id not in loaded(" ".join(documents))["input_ids"]
    characters = sum(len(document.replace(" ", "")) for document in documents)
    assert sum(len(loaded.tokenize(document)) for document in documents) < characters / 2, "words are spelt, not learnt"


def test_training_ignores_rare_characters_and_broken_text(make_documents, monkeypatch):
    documents = [*make_documents(30), "ж \udcff broken"]
    assert "ж" in train_tokenizer(documents, 300).get_vocab()
    monkeypatch.setattr("sharedqkv.data.tokenizer.ALPHABET_SIZE", 20)
    assert "ж" not in train_tokenizer(documents, 300).get_vocab()


def test_training_needs_words_and_room_for_them(make_documents):
    with pytest.raises(ValueError, match="no word"):
        train_tokenizer(["  "], 100)
    check_vocab_size(["  "], 100)  # the start of a text that has words later
    with pytest.raises(ValueError, match=r"--train-vocab-size 20 is too small .*: give at least \d+"):
        train_tokenizer(make_documents(10), 20)


@pytest.mark.real_data
def test_words_one_by_one_give_the_ids_of_the_tokenizer_on_real_text():
    import pyarrow.parquet as pq

    folder = os.environ.get("SHAREDQKV_DATA")
    if not folder:
        pytest.skip("SHAREDQKV_DATA names no folder with real data")
    tokenizer = load_tokenizer(str(Path(folder) / "vocab/bert-base-uncased/vocab.txt"))
    encoder = WordEncoder(tokenizer.backend_tokenizer)
    for corpus in ("wikipedia", "books"):
        documents = pq.read_table(Path(folder) / f"corpus/{corpus}/validation.parquet")["text"].to_pylist()[:100]
        for document, ids in zip(documents, encoder.encode(documents), strict=True):
            assert ids.tolist() == ids_by_the_tokenizer(tokenizer, document)
