"""Figures are equal byte by byte, fit into one page, and differ without colour."""

import io
import re

import numpy as np
import pytest
from matplotlib.image import imread

from sharedqkv.evidence.report.figures import (
    Difference,
    Point,
    best_for_price,
    draw_differences,
    draw_losses,
    draw_maps,
    draw_pareto,
    styles,
)

LOOKS = styles(["standard", "shared"])


def pareto(name="one"):
    points = {"standard": Point(2.0, 80.0, 0.5), "shared": Point(1.0, 79.0, 0.0)}
    return draw_pareto(name, points, "parameters", "score", True, LOOKS)


def test_the_same_data_give_the_same_bytes():
    assert pareto() == pareto()


def test_two_figures_share_no_id():
    ids = [set(re.findall(r'id="([^"]+)"', pareto(name).svg)) for name in ("one", "two")]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_references_stay_inside_the_figure():
    svg = draw_maps("maps", ["a", "b"], np.array([[[0.5, 0.5], [0.1, 0.9]]]), [0]).svg + pareto().svg
    ids = set(re.findall(r'id="([^"]+)"', svg))
    references = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg))
    assert references
    assert {reference for pair in references for reference in pair if reference} <= ids


def test_ink_takes_the_colour_of_the_page():
    svg = pareto().svg
    assert svg.startswith("<svg")
    assert "currentColor" in svg
    assert "#010203" not in svg
    assert ">score</text>" in svg, "text stays text"
    assert not re.search(r"<svg[^>]* (width|height)=", svg)
    assert "viewBox" in svg


@pytest.mark.parametrize("count", [2, 8, 22])
def test_models_look_different_without_colour(count):
    looks = styles([str(number) for number in range(count)]).values()
    assert len({(look.marker, look.dash) for look in looks}) == count


def test_best_for_price():
    a, b, c, d = Point(1, 70, 0), Point(2, 80, 0), Point(3, 75, 0), Point(2, 60, 0)
    assert best_for_price([c, d, b, a], higher_is_better=True) == [a, b]
    assert best_for_price([c, d, b, a], higher_is_better=False) == [a, d]


def test_losses_without_held_out_points_or_entropy():
    drawing = draw_losses("losses", {"standard": [(1000, 5.0), (2000, 4.0)]}, {"standard": []}, None, LOOKS)
    assert "unigram" not in drawing.svg
    assert drawing.png.startswith(b"\x89PNG")


@pytest.mark.parametrize("tasks", [1, 2, 6])
def test_long_names_are_not_cut_off(tasks):
    name = "standard:num_hidden_layers=7,intermediate_size=1904,num_attention_heads=8"
    differences = [Difference(model, -2.0, -4.0, 1.0) for model in ("shared", name)]
    by_task = {f"task {number}": differences for number in range(tasks)}
    drawing = draw_differences("differences", by_task, "standard", styles(["shared", name]))
    picture = imread(io.BytesIO(drawing.png))[:, :, :3]
    assert (picture[:, :2] == 1).all(), "ink at the left edge"
    assert (picture[:, 200:] < 1).any(), "it is not empty"
