"""Lists of an empty product that are open while their first row comes: what stands beside rows comes with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from composer_web.accounts.models import User
from composer_web.env import REPOSITORY
from composer_web.policies.services import import_base
from composer_web.rollouts.dispatch import findings
from composer_web.runs import metrics, services
from composer_web.runs.models import Run
from tests.browser import seed, walking
from tests.browser.conftest import PATIENCE_MS, serve, strict_tab
from tests.browser.episodes import suite
from tests.browser.screenshots import log_in
from trainer.config import RunConfig
from trainer.toy.preset import toy_rl

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]
db, people = walking.db, walking.people


@pytest.fixture
def url(db: None) -> Iterator[str]:
    with serve() as address:
        yield address


@pytest.fixture
def tab(chrome: Browser, url: str, people: dict[str, User]) -> Iterator[Page]:
    context = chrome.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    with strict_tab(context) as page:
        log_in(page, url, "operator", seed.PASSWORD)
        yield page
    context.close()


def opened(tab: Page, address: str) -> None:
    """The page, live and not loaded again from here on."""
    tab.goto(address)
    expect(tab.locator("[data-live-badge]")).to_have_text("live")
    tab.evaluate("window.notReloaded = true")


def startable() -> None:
    """What a run needs: a policy and its suites."""
    import_base(path=REPOSITORY / "policies" / "base", description="where runs start")
    for name, purpose in (("train", "train"), ("held-out", "held-out")):
        suite(name, 8, purpose=purpose)


def made_run(people: dict[str, User]) -> Run:
    stage = toy_rl(steps=4, groups_per_step=1, max_off_policy_steps=0, max_in_flight_groups=1, eval_tasks=4)
    return services.create_run(config=RunConfig(name="first of all", stage=stage), actor=people["operator"])


def test_facets_come_with_the_first_task_and_the_first_run(tab: Page, url: str, people: dict[str, User]) -> None:
    facets = tab.locator("#facets")
    opened(tab, f"{url}/tasks/")
    expect(tab.locator("#rows")).to_contain_text("No tasks yet")
    startable()
    expect(tab.locator("#rows tbody tr")).to_have_count(16)
    tab.locator(".toolbar__filters > summary").click()
    expect(facets.locator("summary", has_text="Source")).to_be_visible()
    assert tab.evaluate("window.notReloaded")

    opened(tab, f"{url}/runs/")
    made_run(people)
    expect(tab.locator("#rows")).to_contain_text("first of all")
    tab.locator(".toolbar__filters > summary").click()
    expect(facets.get_by_role("link", name="operator")).to_be_visible()
    assert tab.evaluate("window.notReloaded")
    tab.keyboard.press("Escape")
    with tab.expect_response(lambda answer: answer.url.endswith("/runs/")):  # what comes later fetches no facets again
        made_run(people)
    expect(tab.locator("#rows tbody tr")).to_have_count(2)
    fetched = "() => performance.getEntriesByType('resource').filter(one => one.name.includes('/facets/')).length"
    assert tab.evaluate(fetched) == 1


def test_figures_and_rules_come_with_the_first_finding(tab: Page, url: str, people: dict[str, User]) -> None:
    startable()
    run = made_run(people)
    opened(tab, f"{url}/findings/")
    first = tab.locator(".figure").first
    expect(first).to_contain_text("0")
    for step in range(1, 41):
        metrics.record(run=run, step=step, values={"behaviour/turns": 3.0 if step < 30 else 30.0})
    assert findings.watch(run=run) > 0
    expect(tab.locator("#rows")).to_contain_text("drift-turns")
    expect(first).not_to_contain_text("0")
    expect(tab.locator("#rules")).to_contain_text("By rule")
    assert tab.evaluate("window.notReloaded")
