"""Lists by mouse and keyboard: where they begin, rows, preview, columns, filters, saved views and actions on several rows."""

from __future__ import annotations

import math
import random

import pytest
from django.templatetags.static import static
from playwright.sync_api import Page, ViewportSize

from composer_web.ui.templatetags import ui
from tests.browser.conftest import Product

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
DESK: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}

FIRST_ROW = 220
"""Pixels from the top of the page to the first row of a list, at most."""
LISTS = (
    "/runs/", "/runs/sweeps/", "/runs/templates/", "/rollouts/", "/rollouts/exports/", "/findings/", "/tasks/", "/tasks/changes/",
    "/tasks/disagreements/", "/suites/", "/environments/", "/evaluations/", "/evaluations/releases/",
    "/policies/", "/datasets/", "/review/", "/annotations/", "/drafts/", "/gateway/sessions/", "/alerts/", "/alerts/rules/",
    "/alerts/webhooks/", "/alerts/deliveries/", "/notifications/", "/projects/", "/tokens/",
)  # fmt: skip


def test_lists_begin_at_the_top_and_fit_a_phone(operator: Page, product: Product) -> None:
    page, late, wide = operator, {}, []
    for path in LISTS:
        page.set_viewport_size(DESK)
        page.goto(product.url + path)
        top = page.evaluate(
            """() => { const row = document.querySelector('main table tbody tr, main .empty');
            return row ? row.getBoundingClientRect().top + scrollY : null }"""
        )
        if top is None or top > FIRST_ROW:
            late[path] = top
        page.set_viewport_size(PHONE)
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wide.append(path)
    assert not late and not wide, f"rows begin too low: {late}; the page scrolls sideways: {wide}"


def test_charts_and_pages_write_numbers_alike(operator: Page, product: Product) -> None:
    """The formatter of charts and ticking durations against that of tiles and tables, over ties, edges of units and chance."""
    chance = random.Random(3)
    values: list[float] = [
        0, 1, 2.0, -1, 0.5, 0.05, 0.0547, 0.0003, 0.00003, 3.1e-7, -0.0625, 0.03125, 0.3125, 0.0005, 0.9994, 0.9996,
        0.99951, 1.005, 2.125, 2.375, 14.72, 59.94, 59.97, 62.5, 99.995, 99.996, 100.5, 101.5, 820, 999.5, 1234.5, 3599.4,
        3599.6, 7245, 9999.4, 9999.6, 10_000, 12_345, 12_350, 99_950, 999_499, 999_500, 1_234_567, 9.995e8, 1.5e9, 2.5e12,
        1023, 1024, 1536, 1048576.5,
    ]  # fmt: skip
    values += [math.copysign(10 ** chance.uniform(-8, 12), chance.choice((1, 1, -1))) for _ in range(300)]
    values += [chance.randrange(1, 4096) / 2 ** chance.randrange(0, 12) for _ in range(300)]
    units = ("", "%", "s", "bytes")
    pairs = [(value, unit) for value in values for unit in units if value >= 0 or unit in ("", "%")]
    operator.goto(f"{product.url}/runs/")
    written = operator.evaluate(
        """async ([module, pairs]) => { const { number } = await import(module);
        return pairs.map(([value, unit]) => number(value, unit)) }""",
        [static("js/format.js"), pairs],
    )
    assert [
        wrong
        for wrong in zip(pairs, written, [ui.quantity(*pair) for pair in pairs], strict=True)
        if wrong[1] != wrong[2]
    ] == []
