"""A long series is drawn as a line within the band of its smallest and largest values."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from playwright.sync_api import Page

from composer_web.runs import metrics
from composer_web.runs.models import Metric, Run
from tests.browser.conftest import Product

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]

STEPS = 6000
# The band is one outline: the largest values there, the smallest back.
DRAWN = """() => {
  const plot = document.querySelector("[data-chart] .js-plotly-plot");
  const edge = plot?.data?.find((trace) => trace.fill === "toself")?.y;
  return edge && { high: [...edge.slice(0, edge.length / 2)], low: [...edge.slice(edge.length / 2)] };
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


NAMES = """() => {
  const plot = document.querySelector("[data-chart] .js-plotly-plot");
  return (plot?.data ?? []).map(({ name, y }) => y?.length && name).filter(Boolean);
}"""
MEAN = """() => {
  const plot = document.querySelector("[data-chart] .js-plotly-plot");
  const [band, mean] = plot?.data ?? [];
  const half = band?.y?.length / 2;
  return mean?.y && { high: [...band.y.slice(0, half)], low: [...band.y.slice(half)], mean: [...mean.y], name: mean.name };
}"""


def test_a_group_of_runs_is_its_mean_in_the_band_of_its_runs(operator: Page, product: Product) -> None:
    page, runs = operator, (product.world.run, product.world.other)
    Metric.objects.filter(run__in=runs, key__name="reward/mean").delete()
    for run, value in zip(runs, (0.2, 0.8), strict=True):
        metrics.record_many(run=run, rows=[(step, "reward/mean", value) for step in range(1, 61)])
    page.goto(f"{product.url}/runs/compare/?{'&'.join(f'run={run.pk}' for run in runs)}&group=all")
    page.wait_for_function(f"() => ({MEAN})() !== undefined")
    drawn = page.evaluate(MEAN)
    assert drawn["name"].startswith("all runs (2)")
    assert set(drawn["low"]) == {0.2} and set(drawn["high"]) == {0.8}
    assert all(abs(value - 0.5) < 1e-9 for value in drawn["mean"])
    page.get_by_label("Group by").select_option("")
    page.wait_for_url("**group=")
    page.wait_for_function(f"() => ({NAMES})().some((name) => !name.startsWith('all runs'))")
    assert {name.partition(",")[0] for name in page.evaluate(NAMES)} == {run.name for run in runs}


PLOTTED = """() => [...document.querySelectorAll("[data-chart]")].flatMap((chart) =>
  (chart.querySelector(".js-plotly-plot")?.data ?? []).filter(({ name, y }) => y?.length && name?.includes("best of K"))
    .map(({ name, y }) => [name, y[y.length - 1]]))"""


def test_a_best_of_k_of_a_group_is_of_one_k(operator: Page, product: Product) -> None:
    """Runs with two and with eight attempts a task: their mean would be a figure of neither."""
    page, runs = operator, (product.world.run, product.world.other)
    Metric.objects.filter(run__in=runs, key__name="reward/best_of_k").delete()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # a run's configuration does not change
        for run, size in zip(runs, (2, 8), strict=True):
            stage = {**runs[0].config["stage"], "group_size": size}
            Run.objects.filter(pk=run.pk).update(config={**run.config, "stage": stage})
    for run, value in zip(runs, (0.2, 0.8), strict=True):
        metrics.record_many(run=run, rows=[(step, "reward/best_of_k", value) for step in (1, 20, 40)])
    page.goto(f"{product.url}/runs/compare/?{'&'.join(f'run={run.pk}' for run in runs)}&group=all")
    page.wait_for_function(f"() => ({PLOTTED})().length >= 2")
    drawn = dict(page.evaluate(PLOTTED))
    assert drawn == {"all runs, K = 2 (1), best of K": 0.2, "all runs, K = 8 (1), best of K": 0.8}
