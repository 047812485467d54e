"""The report on robustness: its files say what the analysis says, and can be read back."""

import csv
import itertools
import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from sharedqkv.evidence.comparison import compare_scores
from sharedqkv.evidence.robustness import Analysis, Claim, Curve, DomainScore, Estimate
from sharedqkv.evidence.robustness_report import STYLES, headlines, write_report
from sharedqkv.evidence.runs import RunScores

MODELS = ("standard", "shared")


def around(mean):
    return Estimate(mean, mean - 0.02, mean + 0.03)


def make_curve(task, noise, model, scores=(0.9, 0.8, 0.6)):
    return Curve(
        task=task,
        noise=noise,
        model=model,
        severities=(0, 1, 5),
        levels=(0.0, 0.02, 0.3),
        scores=tuple(map(around, scores)),
        chance=0.5,
        absolute_loss=around(0.2),
        relative_loss=None if model == "shared" else around(0.5),
        area=around(0.7),
        examples=1234,
        noise_seeds=2,
    )


def make_domain(model):
    return DomainScore("sst2", "imdb", model, around(0.71), 0.9, 0.5, None, 25000, {"left out: no label": 7})


def make_claim(subject, main, better):
    rng = np.random.default_rng(0)
    seeds = tuple((0, seed) for seed in range(8))
    a, b = (
        RunScores(model, subject, 500, seeds, mean + 0.01 * rng.normal(size=8), mean + 0.01 * rng.normal(size=(8, 50)))
        for model, mean in (("shared", 0.7 + better), ("standard", 0.7))
    )
    return Claim(subject, "score", compare_scores(a, b), main)


@pytest.fixture
def analysis():
    return Analysis(
        models=list(MODELS),
        curves=[
            make_curve(task, noise, model)
            for task, noises in (("sst2", ("keyboard", "swap", "drop", "gaussian")), ("rte", ("gaussian",)))
            for noise in noises
            for model in MODELS
        ],
        domains=[make_domain(model) for model in MODELS],
        claims=[make_claim("sst2, mean of all noises", True, 0.1), make_claim("sst2, swap", False, 0.0)],
        left_out={"rte, word_drop": "it changes the label"},
        alpha=0.1,
    )


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def tables(markdown):
    """Every table as its rows of cells."""
    for is_table, lines in itertools.groupby(markdown.splitlines(), key=lambda line: line.startswith("|")):
        if is_table:
            yield [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]


def test_the_files(analysis, tmp_path):
    report = write_report(analysis, tmp_path / "deep" / "report")
    assert report == tmp_path / "deep" / "report" / "report.md"
    assert {file.name for file in report.parent.iterdir()} == {
        *("report.md", "robustness.json", "curves.csv", "noise.csv", "domains.csv", "claims.csv"),
        *(f"noise-{task}.{suffix}" for task in ("sst2", "rte") for suffix in ("png", "svg")),
    }


def test_tables_can_be_read_back(analysis, tmp_path):
    write_report(analysis, tmp_path)
    points = read_csv(tmp_path / "curves.csv")
    assert len(points) == len(analysis.curves) * 3
    assert {key: points[2][key] for key in ("task", "noise", "model", "severity")} == {
        "task": "sst2", "noise": "keyboard", "model": "standard", "severity": "5",
    }  # fmt: skip
    assert [float(points[2][key]) for key in ("level", "score", "low", "high")] == [0.3, 0.6, 0.6 - 0.02, 0.6 + 0.03]
    noise = read_csv(tmp_path / "noise.csv")
    assert (noise[0]["clean"], noise[0]["worst"]) == ("90.0", "60.0")
    assert noise[0]["absolute loss"] == "20.0 (18.0 to 23.0)"
    assert [row["relative loss"] for row in noise[:2]] == ["50.0 (48.0 to 53.0)", "–"]
    assert [row["score"] for row in read_csv(tmp_path / "domains.csv")] == ["71.0 (69.0 to 74.0)"] * 2
    claims = read_csv(tmp_path / "claims.csv")
    assert claims[0]["claim"] == "shared over standard: sst2, mean of all noises"
    assert claims[0]["verdict"] == "holds"
    assert float(claims[0]["difference"]) == pytest.approx(10, abs=1.5)
    assert float(claims[0]["detectable"]) > 0


def test_everything_is_in_the_json(analysis, tmp_path):
    write_report(analysis, tmp_path)
    read = json.loads((tmp_path / "robustness.json").read_text(encoding="utf-8"))
    assert read["models"] == list(MODELS)
    assert read["curves"][0]["scores"][2]["mean"] == 0.6
    assert read["claims"][0]["comparison"]["p"] == analysis.claims[0].comparison.p
    assert read["verdicts"] == [claim.verdict for claim in analysis.claims]


def test_the_markdown(analysis, tmp_path):
    text = write_report(analysis, tmp_path).read_text(encoding="utf-8")
    found = list(tables(text))
    assert len(found) == 4, "claims, a table for each task, domains"
    for table in found:
        assert {len(row) for row in table} == {len(table[0])}
        assert set(table[1]) == {"---"}
        assert all(cell for row in table for cell in row)
    for task in ("sst2", "rte"):
        assert f"](noise-{task}.png)" in text
    assert "1,234 examples, 2 noise seed(s); chance is 50.0 points" in text
    assert "with 90 % intervals" in text
    assert "- imdb: long reviews, cut at max_length; left out: no label: 7" in text
    assert "- rte, word_drop: it changes the label" in text
    assert "about these checkpoints, not about variants" in text


def test_headlines_are_the_main_claims(analysis, tmp_path):
    assert headlines(analysis) == [
        "- shared does better than standard on sst2, mean of all noises (score): **holds**",
    ]
    assert headlines(analysis)[0] in write_report(analysis, tmp_path).read_text(encoding="utf-8")


def test_the_picture_shows_every_model(analysis, tmp_path):
    from matplotlib import colors, image

    write_report(analysis, tmp_path)
    picture = image.imread(tmp_path / "noise-sst2.png")[:, :, :3]
    assert min(picture.shape[:2]) > 300
    for colour, _, _ in STYLES[: len(MODELS)]:
        close = np.abs(picture - np.array(colors.to_rgb(colour))).max(axis=2) < 0.05
        assert close.sum() > 100
    assert (tmp_path / "noise-sst2.svg").read_text().rstrip().endswith("</svg>")


def test_without_matplotlib_there_is_a_report_and_no_picture(analysis, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = write_report(analysis, tmp_path).read_text(encoding="utf-8")
    assert "![" not in text
    assert len(list(tables(text))) == 4
    assert not list(tmp_path.glob("*.png"))


def test_a_new_report_leaves_no_table_of_an_old_one(analysis, tmp_path):
    write_report(analysis, tmp_path)
    text = write_report(replace(analysis, domains=[], claims=[], left_out={}), tmp_path).read_text(encoding="utf-8")
    assert not (tmp_path / "domains.csv").exists()
    assert not (tmp_path / "claims.csv").exists()
    for heading in ("Claims", "Other domains", "Left out"):
        assert heading not in text


def test_an_empty_analysis_is_told(tmp_path):
    text = write_report(Analysis(["standard"], [], [], [], {}), tmp_path).read_text(encoding="utf-8")
    assert text.startswith("# Robustness of standard")


@pytest.mark.parametrize(("mean", "told"), [(-0.0001, "0.0"), (0.0, "0.0"), (-0.104, "-10.4"), (1.0, "100.0")])
def test_points(mean, told, analysis, tmp_path):
    curve = replace(analysis.curves[0], absolute_loss=Estimate(mean, mean, mean))
    write_report(replace(analysis, curves=[curve]), tmp_path)
    assert read_csv(tmp_path / "noise.csv")[0]["absolute loss"] == f"{told} ({told} to {told})"
