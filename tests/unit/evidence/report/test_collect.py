"""Reading a study's folder: what is there, what is missing, what is damaged."""

import json
import math
import shutil

import pytest
from report_helpers import make_info, make_study

from sharedqkv.evidence.report.collect import read_study
from sharedqkv.tasks.cells import write_json


def test_everything_is_found(study_folder):
    study = read_study(study_folder)
    assert [entrant.name for entrant in study.entrants] == ["standard", "shared", "narrow"]
    assert [run.seed for run in study.pretraining["shared"]] == [0, 1, 2, 3, 4]
    run = study.pretraining["shared"][1]
    assert run.final_loss == pytest.approx(2.2 - 0.75 + 0.02)
    assert (run.tokens, len(run.training), len(run.held_out), run.seconds) == (300_000, 30, 3, 15.0)
    assert run.config.attention_variant == "shared"
    assert sorted(study.finetuning["narrow"]) == [0, 1, 2, 3, 4]
    assert study.bench.entrants["shared"].peak_memory_bytes == 49_000_000
    assert study.maps.entrants["narrow"].shape == (2, 10, 10)
    assert study.problems == {}


def test_unigram_entropy_leaves_special_tokens_out(study_folder):
    assert read_study(study_folder).corpus.unigram_entropy == pytest.approx(math.log(8))


def test_only_study_json_must_be_there(tmp_path):
    write_json(tmp_path / "study.json", make_info(["standard", "shared"], 1))
    study = read_study(tmp_path)
    assert (study.pretraining, study.finetuning, study.problems) == ({}, {}, {})
    assert (study.bench, study.maps, study.corpus) == (None, None, None)


def test_no_study_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is no study folder: study\.json is missing"):
        read_study(tmp_path)
    with pytest.raises(FileNotFoundError, match="is no study folder"):
        read_study(tmp_path / "none")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "study.json is damaged"),
        (json.dumps({"title": "t"}), "description, state, .* missing"),
        (json.dumps({**make_info(["standard"], 1), "baseline": "other"}), "baseline 'other' is no entrant"),
    ],
)
def test_a_bad_study_json_is_named(content, message, tmp_path):
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_study(tmp_path)


def test_a_variant_of_a_plugin_that_is_not_installed_is_named(tmp_path):
    info = make_info(["standard", "shared"], 1)
    info["entrants"][1] |= {"name": "theirs:size=2", "variant": "theirs"}
    (tmp_path / "study.json").write_text(json.dumps(info))
    with pytest.raises(ValueError, match="theirs:size=2 is of the variant 'theirs', which is not known here"):
        read_study(tmp_path)


def test_damaged_parts_are_told_and_the_rest_is_read(tmp_path):
    folder = make_study(tmp_path / "study", {"standard": 0.9, "shared": 0.8}, seeds=2, finetune_seeds=1)
    (folder / "bench.json").write_text("{")
    (folder / "maps.json").write_text(json.dumps({"tokens": []}))
    (folder / "corpus" / "validation.npy").unlink()
    shutil.rmtree(folder / "pretrain" / "shared" / "1" / "model")
    study = read_study(folder)
    assert set(study.problems) == {"bench.json", "maps.json", "corpus", "pretrain/shared/1"}
    assert not any(str(folder) in problem for problem in study.problems.values())
    assert [run.seed for run in study.pretraining["shared"]] == [0]


def test_a_run_that_is_not_done_has_no_loss_to_show(tmp_path):
    folder = make_study(tmp_path / "study", {"standard": 0.9}, seeds=1, finetune_seeds=1)
    write_json(folder / "pretrain" / "standard" / "0" / "run.json", {"kind": "pretrain", "state": "running"})
    assert read_study(folder).pretraining == {}


def test_why_a_stage_shows_nothing(tmp_path):
    info = make_info(["standard"], 1)
    del info["cells"]["maps"]
    info["cells"]["bench"] = {"state": "pending", "seconds": None, "error": None}
    info["cells"]["robust/standard/0"] = {"state": "failed", "seconds": 1, "error": f"{tmp_path}/finetune: no models"}
    write_json(tmp_path / "study.json", info)
    study = read_study(tmp_path)
    assert study.absence("maps") == "This part was not asked for in the study."
    assert "not finished" in study.absence("bench")
    assert study.absence("robust") == "This part failed: robust/standard/0: finetune: no models."
    assert study.absence("finetune") == "This part of the study left nothing to show."


def test_who_stands_for_a_variant(tmp_path):
    info = make_info(["standard", "shared"], 1)
    extra = {**info["entrants"][1], "name": "shared, rotary", "slug": "r", "position_embedding_type": "rotary"}
    info["entrants"] = [info["entrants"][0], extra, info["entrants"][1]]
    write_json(tmp_path / "study.json", info)
    study = read_study(tmp_path)
    assert study.entrant("shared").name == study.focus.name == "shared", "it has the baseline's positions"
    assert study.entrant("narrow") is None
