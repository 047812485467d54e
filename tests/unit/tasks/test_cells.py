"""When a cell counts as finished."""

import pytest

from sharedqkv.tasks.cells import (
    Cell,
    compress_predictions,
    kept_cells,
    predictions_file,
    read_predictions,
    settings_sha256,
    write_json,
    write_predictions,
)
from sharedqkv.tasks.task import Split

SPLIT = Split("cola", "validation", "cola")
SETTINGS = {"task": "cola", "seed": 3, "recipe": {"epochs": 1.0}}


@pytest.fixture
def cell(tmp_path):
    cell = Cell(tmp_path, "cola", 3)
    sha256 = write_predictions(predictions_file(tmp_path, SPLIT, 3), [{"id": 0, "prediction": 1}])
    kept = {"data_sha256": "data", "predictions_sha256": sha256}
    record = {"settings_sha256": settings_sha256(SETTINGS), "splits": {"cola/validation": kept}}
    write_json(cell.record_file, record)
    return cell


def test_a_whole_cell_is_finished(cell):
    assert cell.finished(SETTINGS, {SPLIT: "data"}, keep_model=False)


@pytest.mark.parametrize(
    ("settings", "data", "keep_model"),
    [
        ({**SETTINGS, "recipe": {"epochs": 2.0}}, {SPLIT: "data"}, False),
        (SETTINGS, {SPLIT: "other data"}, False),
        (SETTINGS, {SPLIT: "data", Split("cola", "test"): "data"}, False),
        (SETTINGS, {SPLIT: "data"}, True),
    ],
)
def test_other_settings_data_or_wishes_make_it_unfinished(cell, settings, data, keep_model):
    assert not cell.finished(settings, data, keep_model)


@pytest.mark.parametrize("damage", ["no record", "cut record", "no predictions", "cut predictions"])
def test_what_is_not_whole_is_not_finished(cell, damage):
    path = cell.record_file if "record" in damage else predictions_file(cell.run, SPLIT, 3)
    if damage.startswith("no"):
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-5])
    assert not cell.finished(SETTINGS, {SPLIT: "data"}, keep_model=False)


def test_cells_are_found_by_task_and_seed(cell):
    write_json(Cell(cell.run, "cola", 10).record_file, {})
    cell.error_file.write_text("an error is no record")
    assert [str(found) for found in kept_cells(cell.run)] == ["cola, seed 3", "cola, seed 10"]


def test_predictions_come_back_as_they_were(tmp_path):
    records = [{"id": "é", "prediction": "two\u2028lines\x85and\nmore", "scores": {"span": 0.1 + 0.2}}]
    write_predictions(tmp_path / "file.jsonl", records)
    assert read_predictions(tmp_path / "file.jsonl") == records


def test_compressed_predictions_come_back_with_four_decimals(tmp_path):
    file = tmp_path / "file.jsonl"
    other = {"id": "2", "prediction": 1.0, "scores": [1.0]}
    write_predictions(file, [{"id": "é\u2028", "prediction": 1.234567, "scores": [0.00001, -2.5]}, other])
    compress_predictions(file)
    assert [path.name for path in tmp_path.iterdir()] == ["file.columns.json.xz"]
    assert read_predictions(file) == [{"id": "é\u2028", "prediction": 1.2346, "scores": [0.0, -2.5]}, other]
    write_predictions(file, [])
    compress_predictions(file)
    assert read_predictions(file) == []
    compressed = tmp_path / "file.columns.json.xz"
    compressed.write_bytes(compressed.read_bytes()[:40])
    with pytest.raises(ValueError, match=r"file.columns.json.xz is damaged"):
        read_predictions(file)


def test_missing_and_damaged_predictions_name_the_remedy(cell):
    path = predictions_file(cell.run, SPLIT, 3)
    path.write_text('{"id": 0\n')
    with pytest.raises(ValueError, match="is damaged"):
        read_predictions(path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="finetune` again"):
        read_predictions(path)
