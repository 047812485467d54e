"""The whole report: every section from a whole study, and something in its place where parts are missing."""

import csv
import json
import re
import shutil

import pytest
from report_helpers import make_bench, make_info, make_pretraining, make_study

from sharedqkv.evidence.report import build_report, strip_timed
from sharedqkv.models.specs import parse_spec
from sharedqkv.tasks.cells import write_json

SECTIONS = [
    "Summary",
    "The paper's claims",
    "Scores on the tasks",
    "Pre-training",
    "Quality for its price",
    "Under noise",
    "On other domains",
    "Parameters and FLOPs",
    "Speed and memory",
    "Attention maps",
    "Environment",
    "How to reproduce",
]


def sections_of(report):
    """Title → text, of the Markdown."""
    parts = (report / "report.md").read_text(encoding="utf-8").split("\n## ")[1:]
    return dict(part.split("\n", 1) for part in parts)


def rows_of(report, name):
    with open(report / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_section_is_there_and_full(report):
    sections = sections_of(report)
    assert list(sections) == SECTIONS
    html = (report / "index.html").read_text(encoding="utf-8")
    assert [title.replace("&#39;", "'") for title in re.findall(r"<h2[^>]*>(.*?)</h2>", html)] == SECTIONS
    assert 'class="missing' not in html
    assert re.search(r"\| shared \| 7\d\.\d ± \d\.\d ▼ \|", sections["Scores on the tasks"])
    assert "| best constant answer | 50.0 | 50.0 | 0.0 | – | – |" in sections["Scores on the tasks"]
    assert "| unigram entropy | 2.079 |" in sections["Pre-training"]
    assert "figures/quality_parameters.png" in sections["Quality for its price"]
    assert "| sst2, keyboard |" in sections["Under noise"]
    assert "acceptability is a judgement on the form" in sections["Under noise"]
    assert re.search(
        r"\| sst2, mean of all noises: shared against standard \| 5 and 5 \| [+−]", sections["Under noise"]
    )
    assert "| sst2 → imdb |" in sections["On other domains"]
    assert re.search(
        r"\| sst2 → mean of all domains: shared against standard \| 5 and 5 \| −", sections["On other domains"]
    )
    assert "| shared | 1,120 | 2,176 | 21,864 | 15.8 % |" in sections["Parameters and FLOPs"]
    assert "| shared | 97.0 (96.0 to 98.0) | 4.0 % |" in sections["Speed and memory"]
    assert "the dogs near the old house bark" in sections["Attention maps"]
    assert "| commit | 0123abc |" in sections["Environment"]
    assert "sharedqkv study 'my study.yaml'" in sections["How to reproduce"]
    assert "variants: [standard, shared]" in sections["How to reproduce"]


def test_code_that_changed_between_runs_is_told(tmp_path):
    write_json(tmp_path / "study.json", make_info(["standard"], 3))
    for seed, commit in enumerate(("aaa", "bbb", "bbb")):
        run = tmp_path / "pretrain" / "standard" / str(seed)
        make_pretraining(run, "standard", seed, 2.0)
        info = json.loads((run / "run.json").read_text()) | {"environment": {"git": {"sha": commit}}}
        write_json(run / "run.json", info)
    build_report(tmp_path, tmp_path / "report")
    told = "| commit | aaa (1 pre-training run), bbb (2 pre-training runs) |"
    assert told in (tmp_path / "report" / "report.md").read_text()


def test_figures_and_tables_are_files_too(report):
    stems = {path.stem for path in (report / "figures").glob("*.svg")}
    assert {"differences", "losses", "quality_parameters", "timed_quality_time", "noise_sst2"} <= stems
    for suffix in ("png", "csv"):
        assert {path.stem for path in (report / "figures").glob(f"*.{suffix}")} == stems
    [row] = [row for row in rows_of(report, "tables/scores.csv") if row["model"] == "shared" and row["task"] == "sst2"]
    assert float(row["mean"]) == pytest.approx(0.75, abs=0.05)
    assert float(row["p corrected"]) < 0.05
    maps = rows_of(report, "figures/attention_shared.csv")
    assert len(maps) == 2 * 10 * 10
    assert sum(float(row["weight"]) for row in maps) == pytest.approx(20, abs=0.1)


def test_only_timed_parts_depend_on_the_clock(report, study_folder, tmp_path):
    """Another bench and other dates: what is left without the timed parts is the same to the byte."""
    again = tmp_path / "study"
    shutil.copytree(study_folder, again)
    bench = make_bench(["standard", "shared", "narrow"])
    for timing in bench["entrants"].values():
        timing["train_step_s"] = [seconds**9 for seconds in timing["train_step_s"]]
        timing["peak_memory_bytes"] += 7_000_000
    write_json(again / "bench.json", bench)
    info = json.loads((again / "study.json").read_text())
    write_json(again / "study.json", {**info, "started": "2027-01-01", "ended": "2027-01-02"})
    for metrics in again.glob("pretrain/*/*/metrics.jsonl"):
        metrics.write_text(metrics.read_text().replace('"seconds": 0.5', '"seconds": 0.7'))
    other = build_report(again).parent
    assert "so look twice: shared (1.4" in (other / "index.html").read_text()
    names = {path.relative_to(report) for path in report.rglob("*.*")}
    assert names == {path.relative_to(other) for path in other.rglob("*.*")}
    for name in names:
        if name.name.startswith("timed_"):
            assert (other / name).read_bytes() != (report / name).read_bytes()
        elif name.suffix in (".html", ".md"):
            assert strip_timed((other / name).read_text()) == strip_timed((report / name).read_text())
        else:
            assert (other / name).read_bytes() == (report / name).read_bytes(), name


def test_a_study_that_has_just_begun(tmp_path):
    info = make_info(["standard", "shared"], 1)
    info["cells"] = {name: {"state": "pending", "seconds": None, "error": None} for name in info["cells"]}
    write_json(tmp_path / "study.json", {**info, "state": "running", "ended": None})
    sections = sections_of(build_report(tmp_path).parent)
    assert list(sections) == SECTIONS
    assert "This study is not finished: 0 of 9 cells are done." in sections["Summary"]
    assert "No model has been pre-trained yet" in sections["Summary"]
    for title in SECTIONS[2:10]:
        assert "not finished" in sections[title], title


def test_failed_cells_are_told_in_their_place(tmp_path):
    folder = make_study(tmp_path / "study", {"standard": 0.9, "shared": 0.8, "narrow": 0.85}, 2, 1, 40)
    info = json.loads((folder / "study.json").read_text())
    error = {"state": "failed", "seconds": 1.0, "error": f"the loss is NaN in {folder}/pretrain"}
    for cell in ("pretrain/shared/0", "pretrain/shared/1", "bench"):
        info["cells"][cell] = error
    write_json(folder / "study.json", {**info, "state": "failed"})
    for stage in ("pretrain", "finetune"):
        shutil.rmtree(folder / stage / "shared")
    (folder / "bench.json").unlink()
    (folder / "maps.json").unlink()
    sections = sections_of(build_report(folder).parent)
    assert "Parts of this study are missing: 18 of 21 cells are done." in sections["Summary"]
    assert "| pretrain/shared/0 | the loss is NaN in pretrain |" in sections["Summary"]
    assert "There is no finished pre-training of `shared`" in sections["Summary"]
    assert "| shared | – | – | – | – | 0 |" in sections["Scores on the tasks"]
    assert "This part failed: bench: the loss is NaN" in sections["Speed and memory"]
    assert "timed_quality_time" in sections["Quality for its price"], "by the time of pre-training instead"
    assert "left nothing to show" in sections["Attention maps"]
    assert "not tested here" in sections["The paper's claims"]


def test_only_pretraining(tmp_path):
    folder = make_study(tmp_path / "study", {"standard": 0.9, "shared": 0.8}, 2, 1, 40, noises=[], domains=[], tasks=[])
    info = json.loads((folder / "study.json").read_text())
    info["cells"] = {name: cell for name, cell in info["cells"].items() if name.startswith("pre")}
    write_json(folder / "study.json", info)
    shutil.rmtree(folder / "finetune")
    for name in ("bench.json", "maps.json"):
        (folder / name).unlink()
    sections = sections_of(build_report(folder).parent)
    for title in ("Scores on the tasks", "Under noise", "On other domains", "Speed and memory", "Attention maps"):
        assert "not asked for" in sections[title]
    assert "lower is better" in sections["Quality for its price"]


def test_an_earlier_report_leaves_nothing_behind(tmp_path):
    write_json(tmp_path / "study.json", make_info(["standard"], 1))
    old = tmp_path / "elsewhere" / "figures" / "noise_sst2.png"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"")
    assert build_report(tmp_path, tmp_path / "elsewhere") == tmp_path / "elsewhere" / "index.html"
    assert not old.exists()
    assert not (tmp_path / "report").exists()


def test_baselines_that_differ_by_options_are_named_too(tmp_path):
    names = ["standard", "standard:num_hidden_layers=7", "shared:num_hidden_layers=7"]
    info = make_info(names, 1)
    for entrant in info["entrants"]:
        entrant["variant"], entrant["attention_options"], entrant["model"] = parse_spec(entrant["name"])
        make_pretraining(tmp_path / "pretrain" / entrant["slug"] / "0", entrant["variant"], 0, 2.0)
    write_json(tmp_path / "study.json", info)
    text = (build_report(tmp_path).parent / "report.md").read_text()
    assert "the baseline that is most like it, `standard` or `standard:num_hidden_layers=7`." in text


def test_each_kind_of_positions_has_its_baseline(tmp_path):
    names = [f"{variant}, {positions}" for positions in ("rotary", "absolute") for variant in ("standard", "shared")]
    info = make_info(names, 2)
    for entrant in info["entrants"]:
        entrant["variant"], entrant["position_embedding_type"] = entrant["name"].split(", ")
        for seed in range(1 if entrant["name"] == "shared, absolute" else 2):
            loss = 2.0 + ("absolute" in entrant["name"]) + 0.125 * ("shared" in entrant["name"])
            make_pretraining(tmp_path / "pretrain" / entrant["slug"] / str(seed), entrant["variant"], seed, loss)
    write_json(tmp_path / "study.json", info)
    report = build_report(tmp_path).parent
    text = (report / "report.md").read_text()
    assert "compared with the baseline that is most like it, `standard, rotary` or `standard, absolute`." in text
    assert {path.name for path in (report / "figures").glob("losses*.png")} == {
        "losses_absolute.png",
        "losses_rotary.png",
    }
    with open(report / "tables" / "losses.csv", encoding="utf-8") as file:
        rows = {row["model"]: row for row in csv.DictReader(file)}
    assert rows["shared, absolute"]["against"] == "standard, absolute"
    assert float(rows["shared, absolute"]["difference"]) == 0.125, "one seed is described, not tested"
    assert rows["shared, absolute"]["p"] == ""
    assert rows["shared, rotary"]["p"] != ""


def make_pretraining_only(folder, **info):
    for variant in ("standard", "shared"):
        make_pretraining(folder / "pretrain" / variant / "0", variant, 0, 2.0)
    write_json(folder / "study.json", {**make_info(["standard", "shared"], 1), "tasks": [], **info})
    return folder


def test_times_of_runs_that_shared_a_device_are_left_out(tmp_path):
    for side_by_side in (1, 3):
        folder = make_pretraining_only(tmp_path / str(side_by_side), side_by_side=side_by_side)
        report = build_report(folder).parent
        speed = sections_of(report)["Speed and memory"]
        shown = side_by_side == 1
        assert ("Minutes of pre-training, mean over seeds" in speed) == shown
        assert ("left out: up to 3 runs at once shared a device" in speed) == (not shown)
        assert (report / "figures" / "timed_quality_time.png").exists() == shown
        assert (report / "figures" / "quality_parameters.png").exists()


def test_the_time_of_a_step_is_shown_whatever_ran_side_by_side(tmp_path):
    """The benchmark runs alone."""
    folder = make_pretraining_only(tmp_path, side_by_side=3)
    write_json(folder / "bench.json", make_bench(["standard", "shared"]))
    report = build_report(folder).parent
    assert "Minutes of pre-training" not in sections_of(report)["Speed and memory"]
    assert (report / "figures" / "timed_quality_time.png").exists()


def test_flops_are_those_of_the_corpus_rows(tmp_path):
    folder = make_pretraining_only(tmp_path)
    write_json(folder / "corpus_manifest.json", {"length": 16})
    section = sections_of(build_report(folder).parent)["Parameters and FLOPs"]
    assert "FLOPs a token in rows of 16 tokens" in section.split("|")[0], "in the caption"
