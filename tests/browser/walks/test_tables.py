"""Lists by mouse and keyboard: where they begin, rows, preview, columns, filters, saved views and actions on several rows."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, ViewportSize

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
