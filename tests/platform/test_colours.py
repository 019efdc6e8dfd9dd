"""Colours that tell something are told apart by people who do not see all of them.

Colours are mixed to what is seen without red, green or blue cones by the matrices of Machado, Oliveira and Fernandes (2009),
in linear light, and compared by their distance in CIELAB (CIE 1976), of which about 2.3 is just noticed.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import numpy.typing as npt
import pytest

from composer_web.env import REPOSITORY

Colour = npt.NDArray[np.float64]
CSS = (REPOSITORY / "static/css/tokens.css").read_text()
PAIR = re.compile(r"--([\w-]+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\)")
THEMES = ("light", "dark")
FOUND = {name: dict(zip(THEMES, colours, strict=True)) for name, *colours in PAIR.findall(CSS)}
SEEN = {
    "all": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
TOLD = 10.0
"""Least distance of two steps of a scale: four times what is just noticed."""
LINES = 25.0
"""The same of two thin lines."""


def lab(colour: str, eyes: str) -> Colour:
    rgb = np.array([int(colour[at : at + 2], 16) for at in (0, 2, 4)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(SEEN[eyes] @ linear, 0, 1) / (TO_XYZ @ np.ones(3))
    x, y, z = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def scale(name: str, theme: str, eyes: str) -> list[Colour]:
    steps = sorted(step for step in FOUND if re.fullmatch(rf"{name}-\d", step))
    assert len(steps) >= 3, f"tokens.css has {steps}"
    return [lab(FOUND[step][theme], eyes) for step in steps]


@pytest.mark.parametrize("eyes", SEEN)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", ["heat", "cold"])
def test_a_scale_reads_by_lightness_alone(name: str, theme: str, eyes: str) -> None:
    """From the page's own colour on: each step further from it than the one before."""
    steps = [float(step[0]) for step in scale(name, theme, eyes)]
    assert steps == sorted(steps, reverse=theme == "light"), steps
    assert min(abs(after - before) for before, after in itertools.pairwise(steps)) > 2.3


@pytest.mark.parametrize("eyes", SEEN)
@pytest.mark.parametrize("theme", THEMES)
def test_more_and_less_are_told_apart(theme: str, eyes: str) -> None:
    """The two sides of the scale of an advantage or a gap, step by step."""
    for warm, cold in zip(scale("heat", theme, eyes), scale("cold", theme, eyes), strict=False):
        assert np.linalg.norm(warm - cold) > TOLD


@pytest.mark.parametrize("eyes", SEEN)
@pytest.mark.parametrize("theme", THEMES)
def test_lines_of_a_chart_are_told_apart(theme: str, eyes: str) -> None:
    for one, other in itertools.combinations(scale("series", theme, eyes), 2):
        assert np.linalg.norm(one - other) > LINES
