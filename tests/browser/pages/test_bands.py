"""A long series is drawn as a line within the band of its smallest and largest values."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from composer_web.runs import metrics
from tests.browser.conftest import Product

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

STEPS = 6000
DRAWN = """() => {
  const plot = document.querySelector("[data-chart] .js-plotly-plot");
  const [low, high] = [plot?.data?.[0], plot?.data?.find((trace) => trace.fill === "tonexty")];
  return high && { low: [...low.y], high: [...high.y] };
}"""


def test_a_long_series_has_its_band(operator: Page, product: Product) -> None:
    page, run = operator, product.world.other
    rows = [(step, "reward/mean", 0.25 + 0.5 * (step % 2)) for step in range(1, STEPS + 1)]
    metrics.record_many(run=run, rows=rows)
    page.goto(f"{product.url}/runs/{run.pk}/")
    page.wait_for_function(f"() => ({DRAWN})() !== undefined")
    drawn = page.evaluate(DRAWN)
    assert len(drawn["low"]) == len(drawn["high"]) < STEPS / 4, "buckets, not points"
    assert set(drawn["low"]) == {0.25} and set(drawn["high"]) == {0.75}
