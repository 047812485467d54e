"""Real text: every variant learns something, and those that can in this budget learn to use context.

Minutes a variant, so slow; set SHAREDQKV_DATA to a folder with corpus/wikipedia/validation.parquet.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import sharedqkv_console
from sharedqkv.data.prepare import PrepareArguments, prepare
from sharedqkv.data.shards import ShardedRows

pytestmark = [pytest.mark.slow, pytest.mark.real_data]

LEARNS_CONTEXT_LATER = {"shared", "tied", "rolled", "low_rank"}
"""With 3 M tokens these still sit where a model without context would: they leave that plateau later. They pass the
unigram bar only. Seen (entropy 6.36, context-free 5.86): overlapping 3.99, grouped 4.45, standard 4.45, narrow 4.50,
pairwise 4.95, key_value 5.12, symmetric 5.37, rolled 5.93, shared 5.94, low_rank 5.94."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = os.environ.get("SHAREDQKV_DATA")
    if not folder:
        pytest.skip("SHAREDQKV_DATA is not set")
    output = tmp_path_factory.mktemp("wikipedia") / "corpus"
    prepare(
        PrepareArguments(
            output=str(output),
            source=(str(Path(folder) / "corpus" / "wikipedia" / "validation.parquet"),),
            train_vocab_size=2000,
            length=64,
            validation_fraction=0.05,
        )
    )
    return output


def unigram_entropy(corpus: Path) -> float:
    rows = ShardedRows.open(corpus, "train")
    counts = np.bincount(np.concatenate([rows[row] for row in range(len(rows))]), minlength=rows.manifest.vocab_size)
    counts[[rows.manifest.pad_id, rows.manifest.cls_id, rows.manifest.sep_id]] = 0
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def context_free_loss(entropy: float) -> float:
    """The best a model can do that looks at nothing but the masked position itself.

    80 % of the targets show [MASK]: the entropy. 20 % show a token that is the target in one case of two, so right
    guesses cost ln 2 and wrong ones ln 2 more than the entropy.
    """
    return 0.8 * entropy + 0.1 * np.log(2) + 0.1 * (np.log(2) + entropy)


def test_learns(corpus, variant, tmp_path):
    arguments = ["pretrain", "tiny_cpu", f"--data={corpus}", f"--output={tmp_path / 'run'}"]
    arguments += [f"--attention_variant={variant}", "--rows_per_step=64", "--rows_per_device=64", "--max_steps=800"]
    assert sharedqkv_console.main([*arguments, "--save_steps=800", "--eval_steps=200"]) == 0
    loss = json.loads((tmp_path / "run" / "run.json").read_text())["eval_loss"]
    entropy = unigram_entropy(corpus)
    assert loss < entropy - 0.3
    if variant not in LEARNS_CONTEXT_LATER:
        assert loss < context_free_loss(entropy) - 0.3
