"""From a suite to a benchmark release with a scored policy and a leaderboard, entirely in the browser."""

from __future__ import annotations

import random
import re

import pytest
from playwright.sync_api import Page, expect

from composer_web.env import REPOSITORY
from composer_web.evals.models import Evaluation
from composer_web.evals.results import tasks
from composer_web.policies.models import Policy
from composer_web.policies.services import record_checkpoint
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.tasks.models import Suite
from composer_web.tasks.services import record_controls
from tests.browser import episodes
from tests.browser.conftest import Product, confirmed

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]


def play(evaluation: Evaluation, skill: float) -> None:
    """What the workers of a product do with an evaluation that was asked for; none run beside the browser's server."""
    tasks.start(evaluation_id=evaluation.pk)
    for group in evaluation.groups.select_related("task_version"):
        episodes.finish_group(group, draw=random.Random(f"{evaluation.pk}/{group.pk}"), skill=skill)
    tasks.advance(evaluation_id=evaluation.pk)
    assert rollouts.drop_open(evaluation_id=evaluation.pk) == 0


def ask(page: Page, effort: str) -> Evaluation:
    if page.locator("#run:not([open])").count():
        page.locator("#run > summary").click()
    form = page.get_by_role("form", name="Run a policy")
    form.get_by_label("Policy").select_option("base")
    form.get_by_label("Samples").fill("4")
    form.get_by_label("Effort").fill(effort)
    form.get_by_label("Output $ per 1M").fill("2")
    form.get_by_role("button", name="Run").click()
    expect(page.get_by_text("The evaluation is on its way")).to_be_visible()
    return Evaluation.objects.latest("pk")


def test_from_a_suite_to_a_leaderboard(operator: Page, product: Product) -> None:
    page = operator
    suite = episodes.suite("walked", 6, purpose="benchmark")
    for version in suite.versions.filter(controls_ok=None):
        record_controls(version=version, controls={"bundle_hash": version.bundle_hash}, ok=True)
    assert Suite.objects.filter(name="walked").exists()
    page.goto(f"{product.url}/evaluations/")
    page.get_by_role("link", name="Benchmark releases").click()
    form = page.get_by_role("form", name="Publish a release")
    page.locator("#publish > summary").click()
    for unreviewed in (False, True):
        form.get_by_label("Benchmark").fill("walk")
        form.get_by_label("Suite").select_option("walked")
        form.get_by_label("Include unreviewed tasks").set_checked(unreviewed)
        form.get_by_role("button", name="Publish").click()
        if not unreviewed:
            expect(page.get_by_text("two reviewers have not admitted 6 of 6 tasks")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text("walk-1")
    expect(page.get_by_text("6 of 6 tasks unreviewed")).to_be_visible()
    expect(page.get_by_text("No finished evaluation yet.")).to_be_visible()
    play(ask(page, "low"), skill=0.0)
    play(ask(page, "high"), skill=1.0)
    page.reload()
    rows = page.locator("section", has=page.get_by_role("heading", name="Leaderboard")).locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("base@0 (high)")
    expect(rows.first).to_contain_text("100")
    expect(rows.last).to_contain_text("base@0 (low)")
    expect(page.locator("[data-pareto][data-drawn]")).to_have_count(2)
    page.get_by_role("link", name="task by task").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("base@0 (low) against base@0 (high)")
    worse = page.locator("tbody tr").first
    expect(worse).to_contain_text("significant")
    worse.locator("td").last.get_by_role("link").last.click()
    expect(page).to_have_url(re.compile(r"/rollouts/\d+/"))


def test_promote_and_roll_back(operator: Page, product: Product) -> None:
    page = operator
    weights = REPOSITORY / "policies" / "base"
    record_checkpoint(policy=Policy.objects.get(name="base"), version=1, path=weights, final=False)
    page.goto(f"{product.url}/policies/")
    page.get_by_role("navigation", name="Policies").get_by_role("link", name="Promotion").click()
    served = page.locator("section", has=page.get_by_role("heading", name="In production"))
    expect(served.locator("dl")).to_contain_text("base@0")
    form = page.get_by_role("form", name="Promote a version")
    form.get_by_label("Policy").select_option("base@1")
    form.get_by_label("Note").fill("for the walk")
    confirmed(page, form.get_by_role("button", name="Promote for all"), "Serve base@1 to everybody?")
    expect(form.locator(".notice")).to_contain_text("the gate is shut: held-out: base@1 has no finished evaluation")
    expect(form.get_by_label("Policy")).to_have_value("base@1")
    expect(form.get_by_label("Note")).to_have_value("for the walk")
    page.get_by_role("button", name="Remove the rule on held-out").click()
    expect(page.locator(".toasts .toast")).to_have_text("The gate is changed.")
    form.get_by_label("Policy").select_option("base@1")
    form.get_by_label("Share in %").fill("10")
    form.get_by_role("button", name="As a canary").click()
    expect(served.locator("dl")).to_contain_text("base@1 to 10")
    form.get_by_label("Policy").select_option("base@1")
    confirmed(page, form.get_by_role("button", name="Promote for all"), "Serve base@1 to everybody? The canary ends.")
    confirmed(page, page.get_by_role("button", name="Roll back to base@0"), "Serve base@0 to everybody again?")
    expect(served.locator("dl")).to_contain_text("base@0")
    history = page.locator("section", has=page.get_by_role("heading", name="History")).locator("tbody tr")
    expect(history.first).to_contain_text("Rolled back")
    expect(history).to_have_count(4)
