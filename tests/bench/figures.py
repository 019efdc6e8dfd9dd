"""The figure of a bench: a self-contained page in `$OPENCOMPOSER_DATA/bench`, and a picture where FIGURE names a file.

`FIGURE=docs/figures/NAME.png make bench NAME=…` makes the pictures of the documentation, with Debian's Chromium.
"""

from __future__ import annotations

import os
from pathlib import Path

import plotly.graph_objects as plot

from tests.browser.screenshots import browser

COLOURS = ("#0f62c0", "#c2410c", "#5b7f1d")
WIDTH, HEIGHT = 760, 420


def write(name: str, figure: plot.Figure) -> None:
    """Raises SystemExit where a picture is asked for and there is no Chromium."""
    figure.update_layout(
        template="plotly_white", font={"size": 13}, margin={"l": 64, "r": 16, "t": 16, "b": 56},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    )  # fmt: skip
    data = Path(os.environ.get("OPENCOMPOSER_DATA", ".data")) / "bench"
    data.mkdir(parents=True, exist_ok=True)
    page = data / f"{name}.html"
    figure.write_html(page, include_plotlyjs=True)
    if out := os.environ.get("FIGURE"):
        _photograph(page, Path(out))


def _photograph(page: Path, out: Path) -> None:
    with browser() as chromium:
        tab = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=2)
        tab.goto(page.resolve().as_uri())
        tab.wait_for_selector(".main-svg")
        tab.screenshot(path=out)
