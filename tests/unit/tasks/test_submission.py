"""The zip for GLUE's server."""

import zipfile

from sharedqkv.tasks.cells import predictions_file, write_predictions
from sharedqkv.tasks.glue import GLUE
from sharedqkv.tasks.submission import write_submission


def write_all(run, seed=0):
    for task in GLUE.values():
        for split in task.test:
            prediction = 1 if task.labels else 3.14159
            records = [{"id": index, "label": None, "prediction": prediction, "scores": []} for index in (10, 2)]
            write_predictions(predictions_file(run, split, seed), records)


def test_a_complete_submission(tmp_path):
    write_all(tmp_path)
    path, missing = write_submission(tmp_path, 0, GLUE)
    assert not missing
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert len(files) == 11
    assert files["CoLA.tsv"] == "index\tprediction\n2\t1\n10\t1\n"
    assert files["AX.tsv"] == files["MNLI-mm.tsv"] == "index\tprediction\n2\tneutral\n10\tneutral\n"
    assert files["RTE.tsv"] == "index\tprediction\n2\tnot_entailment\n10\tnot_entailment\n"
    assert files["STS-B.tsv"] == "index\tprediction\n2\t3.142\n10\t3.142\n"


def test_equal_predictions_make_equal_zips(tmp_path):
    for folder in ("a", "b"):
        write_all(tmp_path / folder)
    zips = [write_submission(tmp_path / folder, 0, GLUE)[0].read_bytes() for folder in ("a", "b")]
    assert zips[0] == zips[1]


def test_what_is_missing_is_named(tmp_path):
    write_all(tmp_path)
    predictions_file(tmp_path, GLUE["rte"].test[0], 0).unlink()
    _, missing = write_submission(tmp_path, 0, ["mnli", "rte"])
    assert missing == ["CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "STS-B.tsv", "QQP.tsv", "QNLI.tsv", "RTE.tsv", "WNLI.tsv"]
