"""Key pages look as they did: small pictures of them, in both themes, are compared with those of `tests/data/visual`.

A picture is 240 pixels wide, so that texts such as times and durations count little, and a part that moved, lost its colour or
is missing counts much. `UPDATE_VISUAL=1` writes the pictures anew; look at them before they are committed.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from PIL import Image, ImageChops
from playwright.sync_api import Browser

from tests.browser import corners, seed
from tests.browser.conftest import PATIENCE_MS, Product
from tests.browser.places import places
from tests.browser.screenshots import log_in, settle

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]

PICTURES = Path(__file__).parents[2] / "data" / "visual"
KEY_PAGES = (
    "home", "runs", "run", "run-charts", "run-form", "rollouts", "trajectory", "group", "tasks", "task-review",
    "releases", "system",
)  # fmt: skip
WIDE = {"width": 1440, "height": 900}
SMALL = (240, 150)
DIFFERENT = 40
"""Steps of 255 from which a pixel counts as different."""
MAX_SHARE = 0.02
"""Share of pixels that may differ: numbers and texts change with the time of day, parts of the page do not."""
COLOURS = 64


@pytest.fixture(scope="module")
def product(product: Product, django_db_blocker: pytest.FixtureRequest) -> Product:
    """With one of each thing that has a page."""
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        corners.corners(product.world)
    return product


def small(screenshot: bytes) -> Image.Image:
    """RGB, `SMALL` pixels."""
    whole = Image.open(io.BytesIO(screenshot)).convert("RGB")
    return whole.resize(SMALL, Image.Resampling.BOX)


def share_of_difference(one: Image.Image, other: Image.Image) -> float:
    """Share of pixels that differ by more than `DIFFERENT` in a colour."""
    bands = ImageChops.difference(one, other).split()
    most = ImageChops.lighter(ImageChops.lighter(bands[0], bands[1]), bands[2])
    histogram = most.histogram()
    return sum(histogram[DIFFERENT + 1 :]) / (SMALL[0] * SMALL[1])


def test_key_pages_look_as_they_did(chrome: Browser, product: Product, db: None, tmp_path: Path) -> None:
    context = chrome.new_context(viewport=WIDE, reduced_motion="reduce")  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    log_in(page, product.url, "admin", seed.PASSWORD)
    addresses = places(page, product.url)
    wrong = []
    for name in KEY_PAGES:
        page.goto(product.url + addresses[name])
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            settle(page)
            found, known = small(page.screenshot()), PICTURES / f"{name}-{theme}.png"
            if os.environ.get("UPDATE_VISUAL"):
                found.quantize(COLOURS).save(known, optimize=True)
                continue
            share = share_of_difference(found, Image.open(known).convert("RGB"))
            if share > MAX_SHARE:
                found.save(tmp_path / known.name)
                wrong.append(f"{name}, {theme}: {share:.1%} differs; see {tmp_path / known.name} beside {known}")
    context.close()
    assert not wrong, "\n".join(wrong)


def test_a_part_that_moves_is_noticed() -> None:
    before = Image.new("RGB", SMALL, "white")
    before.paste("navy", (0, 0, 40, 150))
    after = Image.new("RGB", SMALL, "white")
    after.paste("navy", (8, 0, 48, 150))
    assert share_of_difference(before, before.copy()) == 0
    assert share_of_difference(before, after) > MAX_SHARE
