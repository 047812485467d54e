"""Noise inside the model: how much, of what shape, on which tokens, and that it hangs on a row alone."""

import hashlib
import itertools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import helpers
import pytest
import torch
from helpers import tiny_config, tiny_model
from scipy.stats import kurtosis

from sharedqkv.robustness.model_noise import STRENGTHS, NoisyRow, noise_in
from sharedqkv.robustness.noises import MODEL_NOISES
from sharedqkv.robustness.text_noise import RATES

PAD, CLS, SEP = 0, 2, 3
TOKENIZER = SimpleNamespace(cls_token_id=CLS, sep_token_id=SEP)
SEVERITIES = (1, 2, 3, 4, 5)
ON_EMBEDDINGS = ("gaussian", "uniform")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return tiny_model("SequenceClassification", tiny_config())


def make_batch(lengths, width=16):
    """Rows of so many tokens, [CLS] first and [SEP] last; a row's tokens hang on its length alone."""
    rows = [[CLS, *(10 + (7 * place + length) % 29 for place in range(length - 2)), SEP] for length in lengths]
    ids = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long()}


@torch.no_grad()
def embeddings(model, noise, rows, batch, picked=None, seed=0):
    """What the first layer gets; without noise where `noise` is None."""
    batch = dict(batch)
    if noise is None:
        return model.bert(**batch, output_hidden_states=True).hidden_states[0]
    with noise_in(model, TOKENIZER, noise, seed, rows) as on_batch:
        on_batch(range(len(rows)) if picked is None else picked, batch)
        return model.bert(**batch, output_hidden_states=True).hidden_states[0]


def added(model, noise, rows, batch, **options):
    return embeddings(model, noise, rows, batch, **options) - embeddings(model, None, rows, batch)


def mask_after_dropout(rows, batch, seed=0):
    batch = dict(batch)
    with noise_in(None, TOKENIZER, "token_dropout", seed, rows) as on_batch:
        on_batch(range(len(rows)), batch)
    return batch["attention_mask"]


@pytest.mark.parametrize("noise", MODEL_NOISES)
def test_severity_0_is_the_identity(noise, model):
    batch = make_batch((16, 9, 5))
    rows = [NoisyRow("a", 0), NoisyRow("b", 5), NoisyRow("c", 0)]
    clean = model(**batch).logits
    noisy_batch = dict(batch)
    with noise_in(model, TOKENIZER, noise, 0, rows) as on_batch:
        on_batch(range(3), noisy_batch)
        noisy = model(**noisy_batch).logits
    assert torch.equal(noisy[[0, 2]], clean[[0, 2]])
    assert not torch.equal(noisy[1], clean[1])


@pytest.mark.parametrize("noise", ON_EMBEDDINGS)
def test_noise_on_embeddings_hangs_on_the_row_alone(noise, model):
    rows = [NoisyRow(key, severity) for severity in (2, 5) for key in "abc"]
    together = added(model, noise, rows, make_batch((12, 7, 5) * 2))
    # Alone, in another order, with less padding: row 4 is text "b" with severity 5.
    alone = added(model, noise, rows, make_batch((7,), width=8), picked=[4])
    torch.testing.assert_close(alone[0, :7], together[4, :7], rtol=0, atol=1e-5)
    turned = added(model, noise, rows, make_batch((5, 7, 12)), picked=[5, 4, 3])
    torch.testing.assert_close(turned[1, :7], together[4, :7], rtol=0, atol=1e-5)
    torch.testing.assert_close(turned[0, :5], together[5, :5], rtol=0, atol=1e-5)


@pytest.mark.parametrize("noise", ON_EMBEDDINGS)
def test_texts_seeds_and_noises_have_noise_of_their_own(noise, model):
    rows, batch = [NoisyRow("a", 3), NoisyRow("b", 3)], make_batch((16, 16))

    def direction(which, seed, row):
        values = added(model, which, rows, batch, seed=seed)[row].flatten()
        return values / values.norm()

    other_noise = ON_EMBEDDINGS[1 - ON_EMBEDDINGS.index(noise)]
    mine = direction(noise, 0, 0)
    for other in (direction(noise, 0, 1), direction(noise, 1, 0), direction(other_noise, 0, 0)):
        assert abs(float(mine @ other)) < 4 / 512**0.5  # two random directions in 16 × 32 dimensions
    assert torch.equal(mine, direction(noise, 0, 0))


@pytest.mark.parametrize("noise", ON_EMBEDDINGS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_the_standard_deviation_is_relative_to_that_of_the_embeddings(noise, severity, model):
    lengths = [16, 8] * 40
    rows, batch = [NoisyRow(str(number), severity) for number in range(len(lengths))], make_batch(lengths)
    clean, noise_BLD = embeddings(model, None, rows, batch), added(model, noise, rows, batch)
    shares = [
        noise_BLD[row, :length].std() / clean[row, :length].std(correction=0) for row, length in enumerate(lengths)
    ]
    assert float(torch.stack(shares).mean()) == pytest.approx(STRENGTHS[severity - 1], rel=0.02)


def test_the_shapes_of_both_noises(model):
    rows, batch = [NoisyRow(str(number), 3) for number in range(100)], make_batch([16] * 100)
    scale = STRENGTHS[2] * embeddings(model, None, rows, batch)[0].std(correction=0)
    gaussian, uniform = (added(model, noise, rows, batch).flatten() / scale for noise in ON_EMBEDDINGS)
    assert kurtosis(gaussian) == pytest.approx(0, abs=0.1)
    assert kurtosis(uniform) == pytest.approx(-1.2, abs=0.05)
    assert 1.72 < float(uniform.abs().max()) < 3**0.5 + 1e-3
    for values in (gaussian, uniform):
        assert float(values.mean()) == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("noise", ON_EMBEDDINGS)
def test_a_higher_severity_scales_the_noise_of_a_lower_one(noise, model):
    rows, batch = [NoisyRow("a", severity) for severity in SEVERITIES], make_batch([16] * 5)
    noise_BLD = added(model, noise, rows, batch)
    for number, strength in enumerate(STRENGTHS):
        expected = noise_BLD[-1] * strength / STRENGTHS[-1]
        torch.testing.assert_close(noise_BLD[number], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_token_dropout_hides_its_share_of_the_tokens(severity):
    lengths = [16, 12] * 500
    batch = make_batch(lengths)
    kept = mask_after_dropout([NoisyRow(str(number), severity) for number in range(1000)], batch)
    within = (batch["attention_mask"] == 1) & (batch["input_ids"] != CLS) & (batch["input_ids"] != SEP)
    rate, count = RATES[severity - 1], int(within.sum())
    hidden = float((kept[within] == 0).float().mean())
    assert hidden == pytest.approx(rate, abs=4 * (rate * (1 - rate) / count) ** 0.5)
    assert bool((kept[~within] == batch["attention_mask"][~within]).all()), "[CLS], [SEP] and padding stay as they are"


def test_token_dropout_of_a_higher_severity_hides_further_tokens():
    batch = make_batch([16] * 40)
    kept = [mask_after_dropout([NoisyRow(str(n), severity) for n in range(40)], batch) for severity in (0, *SEVERITIES)]
    assert torch.equal(kept[0], batch["attention_mask"])
    for less, more in itertools.pairwise(kept):
        assert bool((more <= less).all())
        assert int(more.sum()) < int(less.sum())


def test_token_dropout_hangs_on_the_row_alone():
    rows = [NoisyRow(str(number), 5) for number in range(30)]
    together = mask_after_dropout(rows, make_batch([12] * 30))
    narrow = mask_after_dropout(rows[7:9], make_batch([12] * 2, width=12))
    assert torch.equal(narrow, together[7:9, :12])
    assert not torch.equal(mask_after_dropout(rows, make_batch([12] * 30), seed=1), together)


@pytest.mark.parametrize("noise", MODEL_NOISES)
def test_the_model_is_as_before_when_the_noise_ends(noise, model):
    batch = make_batch((9, 9))
    rows = [NoisyRow("a", 5), NoisyRow("b", 5)]
    before = embeddings(model, None, rows, batch)
    embeddings(model, noise, rows, batch)
    assert torch.equal(embeddings(model, None, rows, batch), before)
    with pytest.raises(KeyError, match="broken"), noise_in(model, TOKENIZER, noise, 0, rows):
        raise KeyError("broken")
    assert torch.equal(embeddings(model, None, rows, batch), before)


def test_unknown_noises_are_told(model):
    with pytest.raises(ValueError, match="unknown noise 'gausian'; known in the model are gaussian, uniform"):
        embeddings(model, "gausian", [NoisyRow("a", 1)], make_batch((9,)))


def fingerprint():
    """Of the noise on a model and batch that are the same in every process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = tiny_model("SequenceClassification", tiny_config())
    rows, batch = [NoisyRow(key, 4) for key in ("a", "\u00e9", "7")], make_batch((16, 9, 5))
    noises = [added(model, noise, rows, batch, seed=3) for noise in ON_EMBEDDINGS]
    parts = [*noises, mask_after_dropout(rows, batch, seed=3)]
    return hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()


def test_two_processes_make_the_same_noise():
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(helpers.__file__).parent)}
    command = [sys.executable, __file__]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert told.stdout.strip() == fingerprint()


if __name__ == "__main__":
    print(fingerprint())
