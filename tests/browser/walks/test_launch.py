"""The first of the daily jobs: from log-in to started runs through the form, a text and a sweep; then the table of runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from composer_web.runs import services
from composer_web.runs.launch.config_io import load
from composer_web.runs.models import Run, RunTemplate, Sweep
from tests.browser import seed
from tests.browser.conftest import Product
from tests.browser.screenshots import log_in, settle

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]


def test_configure_a_run(page: Page, product: Product, tmp_path: Path) -> None:
    """Log in → a text with a mistake → its line → the form → download → template → sweep preview → started runs."""
    log_in(page, product.url, "operator", seed.PASSWORD)
    page.goto(f"{product.url}/runs/")
    page.click("a:has-text('New run')")
    page.click("#text-fold > summary")
    page.fill("#config-text", "name: Walked\nstage:\n  kind: rl\n  steps: many\n")
    page.click("#fill")
    expect(page.locator("#form-errors")).to_contain_text("line 4: Input should be a valid integer")
    text = (
        "name: Walked\nstage:\n  kind: rl\n  steps: 2\n  groups_per_step: 2\n  group_size: 4\n"
        "  max_in_flight_groups: 4\n  eval_suite: held-out\n  eval_tasks: 4\n  eval_samples: 2\n"
    )
    page.fill("#config-text", text)
    page.click("#fill")
    expect(page.get_by_text("Filled from the text")).to_be_visible()
    expect(page.locator("[name='name']").first).to_have_value("Walked")
    expect(page.locator("#plan")).to_contain_text("2 steps × 2 groups")
    expect(page.locator("#plan")).to_contain_text("Trainer memory per GPU")
    expect(page.locator("#changes")).to_contain_text("40 → 2")
    page.get_by_label("Advanced").check()
    page.fill("[name='seed']", "11")
    expect(page.locator("#changes")).to_contain_text("0 → 11")
    page.click("#more-actions")
    with page.expect_download() as waiting:
        page.click("button[value='toml']")
    target = tmp_path / "run.toml"
    waiting.value.save_as(target)
    assert load(target.read_text()).seed == 11
    page.click("#template-fold > summary")
    page.fill("#template_name", "Walked template")
    page.click("button:has-text('Save as template')")
    expect(page.locator("#changes")).to_contain_text("No changes from the template Walked template")
    assert RunTemplate.objects.get(name="Walked template").configuration.seed == 11
    page.click("#sweep-fold > summary")
    page.fill("#sweep", "stage.optimizer.learning_rate: 3e-4, 7e-4\nstage.steps: 2, 99")
    page.click(".card button:has-text('Preview sweep')")
    expect(page.locator("h1")).to_have_text("Walked: 4 runs")
    expect(page.locator("#preview")).to_contain_text("need 198 prompts")
    page.go_back()
    page.evaluate("document.querySelector('#sweep-fold').open = true")  # a fold may have closed on the way
    page.fill("#sweep", "stage.optimizer.learning_rate: 3e-4, 7e-4")
    page.click(".card button:has-text('Preview sweep')")
    expect(page.locator("#preview tbody tr")).to_have_count(2)
    page.click("button:has-text('Start 2 runs')")
    expect(page.locator("#sweep-runs tbody tr")).to_have_count(2)
    sweep = Sweep.objects.get(name="Walked")
    assert [run.state for run in sweep.runs.order_by("pk")] == ["queued", "queued"]
    page.locator("#sweep-runs tbody a").first.click()
    expect(page.locator("#run-lineage")).to_contain_text("Sweep")
    for run in sweep.runs.all():
        services.cancel_run(run=run)


def test_views_columns_tags_and_archive(operator: Page, product: Product) -> None:
    page = operator
    draft = services.create_run(config=product.world.other.configuration.model_copy(update={"name": "Kept aside"}))
    page.goto(f"{product.url}/runs/?state=draft")
    page.locator(".toolbar__filters > summary").click()
    expect(page.locator("#facets")).to_contain_text("State")
    page.keyboard.press("Escape")
    page.click("#columns")
    page.get_by_label("Seed", exact=True).check()
    page.get_by_label("From", exact=True).uncheck()
    page.click("form[data-columns] button:has-text('Apply')")
    expect(page).to_have_url(re.compile("cols="))
    expect(page.locator("thead")).to_contain_text("Seed")
    expect(page.locator("thead")).not_to_contain_text("From")
    page.click("#views")
    page.fill("[name='name']", "Drafts with seeds")
    page.click(".toolbar__views button:has-text('Save')")
    expect(page).to_have_url(re.compile("state=draft"))
    page.goto(f"{product.url}/runs/")
    page.click("#views")
    page.click("a:has-text('Drafts with seeds')")
    expect(page.locator("thead")).to_contain_text("Seed")
    page.get_by_label("Select Kept aside").check()
    page.fill("#bulk [name='tags']", "aside, later")
    page.click("button:has-text('Add tags')")
    expect(page.locator("#rows")).to_contain_text("later")
    page.goto(f"{product.url}/runs/?tag=aside")
    page.get_by_label("Select Kept aside").check()
    page.click("#bulk button:has-text('Archive')")
    expect(page.get_by_text("Archived. Lists leave it out.")).to_be_visible()
    assert Run.objects.get(pk=draft.pk).archived_at is not None
    page.goto(f"{product.url}/runs/{draft.pk}/")
    page.click("#run-labels summary")
    page.fill("#run-notes", "Not before Monday")
    page.click("#run-labels button:has-text('Save')")
    expect(page.locator("#run-labels")).to_contain_text("Not before Monday")


@pytest.mark.slow
def test_events_are_on_the_axis(operator: Page, product: Product) -> None:
    page = operator
    page.goto(f"{product.url}/runs/{product.world.run.pk}/charts/")
    settle(page)
    kinds = (
        "document.querySelector('[data-chart] .chart__plot').data.filter(t => t.yaxis === 'y2').map(t => t.name).sort()"
    )
    assert {"alert", "checkpoint", "eval"} <= set(page.evaluate(kinds))
    page.click("[data-chart-option='events'] button[value='off']")
    expect(page).to_have_url(re.compile("events=off"))
    page.wait_for_function(f"{kinds}.length === 0")
    page.get_by_label("Smoothing").fill("0.9")
    page.click("nav[aria-label='Run'] a:has-text('System')")
    expect(page.locator("#run-timing")).to_contain_text("Waits for rollouts")
    page.click("nav[aria-label='Run'] a:has-text('Overview')")
    page.locator("#run-lineage").evaluate("element => element.scrollIntoView()")  # which then is replaced
    expect(page.locator("#run-lineage")).to_contain_text("Trains on")


def test_what_was_typed_before_the_script_was_there_is_checked(page: Page, product: Product) -> None:
    log_in(page, product.url, "operator", seed.PASSWORD)
    held: list[Route] = []
    page.route("**/form/form*.js", lambda route: held.append(route))
    with page.expect_request("**/form/form*.js"):
        page.goto(f"{product.url}/runs/new/?preset=rl-smoke")
    page.fill("[name='stage.rl.steps']", "minus one")
    for route in held:
        route.continue_()
    error = page.locator("[data-field='stage.rl.steps'] .field__error")
    expect(error).to_have_text("A whole number is needed; found 'minus one'.")
