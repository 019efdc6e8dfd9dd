"""Small and large screens: lists begin on the first screen of a phone, and a wide screen is used."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.conftest import Product
from tests.browser.screenshots import settle

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]
PHONE: ViewportSize = {"width": 390, "height": 844}
USUAL: ViewportSize = {"width": 1440, "height": 900}
WIDE: ViewportSize = {"width": 2560, "height": 1440}


@pytest.mark.parametrize("path", ["/runs/", "/rollouts/"])
def test_a_list_begins_on_the_first_screen_of_a_phone(operator: Page, product: Product, path: str) -> None:
    page = operator
    page.set_viewport_size(PHONE)
    page.goto(product.url + path)
    settle(page)
    row = page.locator("#rows tbody tr").first
    expect(row).to_be_visible()
    box = row.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= PHONE["height"], f"the first row ends at {box['y'] + box['height']:.0f} px"


USED = """() => {
  const parts = [...document.querySelectorAll("main .card, main [data-chart], main .homebar")];
  const boxes = parts.filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect()).filter((box) => box.width);
  const side = document.querySelector("#sidebar").getBoundingClientRect();
  const room = innerWidth - side.right;
  return (Math.max(...boxes.map((box) => box.right)) - Math.min(...boxes.map((box) => box.left))) / room;
}"""
"""Share of the room beside the sidebar that the content spans."""
COLUMNS = """parts =>
  new Set([...document.querySelectorAll(parts)].map((one) => Math.round(one.getBoundingClientRect().left))).size"""


def test_a_wide_screen_is_used(operator: Page, product: Product) -> None:
    page, run = operator, product.world.run
    for path, parts in (("/", ""), (f"/runs/{run.pk}/", "[data-chart]"), (f"/runs/{run.pk}/charts/", "[data-chart]")):
        columns = []
        for size in (USUAL, WIDE):
            page.set_viewport_size(size)
            page.goto(product.url + path)
            settle(page)
            assert page.evaluate(USED) >= 0.8, f"{path} at {size['width']} px"
            columns.append(page.evaluate(COLUMNS, parts) if parts else 0)
        assert not parts or columns[0] < columns[1], f"{path}: {columns} columns"
