"""The graph of cells: its order, and when a cell counts as finished."""

import dataclasses

import pytest
from study_helpers import TINY, write_study

from sharedqkv.study.cells import cells_of, hash_of, is_finished, write_record
from sharedqkv.study.plan import load_study


@pytest.fixture
def study(tmp_path):
    return load_study(write_study(tmp_path))


def by_name(study):
    return {cell.name: cell for cell in cells_of(study)}


def test_every_cell_comes_after_what_it_needs(study):
    seen = set()
    for cell in cells_of(study):
        assert {needed.name for needed in cell.needs} <= seen
        seen.add(cell.name)
    assert {"prepare", "pretrain/shared/1", "finetune/standard/0", "robust/shared/0", "maps", "bench"} <= seen


def test_a_cell_is_finished_until_its_settings_or_needs_change(study, tmp_path):
    cells = by_name(study)
    cell = cells["finetune/shared/0"]
    assert not is_finished(cell, study, tmp_path)
    for file in ("corpus/manifest.json", "pretrain/shared/0/model/x", "finetune/shared/0/run.json"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    for needed in ("prepare", "pretrain/shared/0"):
        write_record(cells[needed], study, tmp_path, state="done", seconds=1.0, error=None)
    write_record(cell, study, tmp_path, state="failed", seconds=1.0, error="x")
    assert not is_finished(cell, study, tmp_path)
    write_record(cell, study, tmp_path, state="done", seconds=1.0, error=None)
    assert is_finished(cell, study, tmp_path)

    other_steps = load_study(write_study(tmp_path / "b", TINY.replace("max_steps: 4", "max_steps: 6")))
    assert not is_finished(by_name(other_steps)["finetune/shared/0"], other_steps, tmp_path)
    other_words = load_study(write_study(tmp_path / "c", TINY.replace("title: A tiny", "title: Another tiny")))
    assert is_finished(by_name(other_words)["finetune/shared/0"], other_words, tmp_path)
    more_seeds = load_study(write_study(tmp_path / "d", TINY.replace("seeds: 2  # pre", "seeds: 3  # pre")))
    assert is_finished(by_name(more_seeds)["finetune/shared/0"], more_seeds, tmp_path)


def test_hashes_differ_between_cells(study):
    hashes = [hash_of(cell, study) for cell in cells_of(study)]
    assert len(set(hashes)) == len(hashes)


def test_stages_not_asked_for_are_left_out(study):
    names = {cell.stage for cell in cells_of(dataclasses.replace(study, robust=None, bench=None))}
    assert names == {"prepare", "pretrain", "finetune", "maps"}


def test_a_cell_whose_work_or_needs_are_gone_is_not_finished(study, tmp_path):
    cells = by_name(study)
    for file in ("corpus/manifest.json", "pretrain/shared/0/model/x"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    for name in ("prepare", "pretrain/shared/0"):
        write_record(cells[name], study, tmp_path, state="done", seconds=1.0, error=None)
    assert is_finished(cells["pretrain/shared/0"], study, tmp_path)
    (tmp_path / "corpus/manifest.json").unlink()
    assert not is_finished(cells["prepare"], study, tmp_path)
    assert not is_finished(cells["pretrain/shared/0"], study, tmp_path)
