"""The names of all noises, and their severities. Free of torch, so that `--help` can list them at once."""

from sharedqkv.robustness.text_noise import RATES, TEXT_NOISES

MODEL_NOISES = {
    "gaussian": "normal noise after the LayerNorm of the embeddings",
    "uniform": "uniform noise of the same standard deviation there",
    "token_dropout": "a share of the tokens is hidden from attention",
}
NOISES = (*TEXT_NOISES, *MODEL_NOISES)
SEVERITIES = tuple(range(1, len(RATES) + 1))
