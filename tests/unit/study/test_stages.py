"""What a cell leaves behind when it is run again, after a kill or with other settings."""

import pytest
import torch
from study_helpers import TINY, write_study

from sharedqkv.data.files import sha256_of
from sharedqkv.data.manifest import Manifest
from sharedqkv.study.cells import cells_of, write_record
from sharedqkv.study.plan import load_study
from sharedqkv.study.stages import remove_if_of_other_settings, run_cell
from sharedqkv.tasks.cells import read_json


def prepared(study, folder):
    """As a study does it."""
    (prepare, *_) = cells_of(study)
    remove_if_of_other_settings(prepare, study, folder)
    write_record(prepare, study, folder, state="started", seconds=None, error=None)
    run_cell(prepare, study, folder)
    return folder / "corpus"


def test_killed_after_the_corpus_was_made_it_is_made_again_and_the_same(tmp_path):
    study = load_study(write_study(tmp_path))
    before = sha256_of(prepared(study, tmp_path / "out") / "manifest.json")
    assert sha256_of(prepared(study, tmp_path / "out") / "manifest.json") == before


@pytest.mark.parametrize("corpus", ["world", "own text"])
def test_a_corpus_of_other_settings_is_made_anew(corpus, tmp_path):
    text = TINY
    if corpus == "own text":
        (tmp_path / "text.txt").write_text("\n\n".join(f"The {n}th baker smiles at the queen. " * 8 for n in range(90)))
        text = TINY[: TINY.index("finetune:")]
        sizes = text[text.index("  world:") : text.index("  train_vocab_size")]
        text = text.replace(sizes, f"  source: [{tmp_path / 'text.txt'}]\n  validation_fraction: 0.2\n")
    for length in (32, 16):
        study = load_study(write_study(tmp_path, text.replace("length: 32", f"length: {length}")))
        assert Manifest.read(prepared(study, tmp_path / "out")).length == length


def test_steps_are_timed_as_the_study_trains_them(tmp_path, monkeypatch):
    compiled = []

    def compile_(model, **options):
        compiled.append(model.config._attn_implementation)
        return model

    monkeypatch.setattr(torch, "compile", compile_)
    text = TINY.replace("recipe: tiny_cpu", "recipe: tiny_cpu\n  compile: true\n  attn_implementation: eager")
    study = load_study(write_study(tmp_path, text))
    (bench,) = (cell for cell in cells_of(study) if cell.stage == "bench")
    run_cell(bench, study, tmp_path)
    assert compiled == ["eager"] * 4, "a training step and a forward pass of two models"
    measured = read_json(tmp_path / "bench.json")
    assert (measured["bf16"], measured["compile"], measured["attn_implementation"]) == (False, True, "eager")
