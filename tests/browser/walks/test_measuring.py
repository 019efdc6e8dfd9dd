"""Measuring a policy from its page: the form on a phone, what is under way as it goes, and its figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from composer_web.policies.measurement import measurement_jobs
from composer_web.policies.models import MeasurementOrder, Policy
from composer_web.repositories.models import Repository
from tests.browser import seed
from tests.browser.conftest import PATIENCE_MS, Product
from tests.browser.screenshots import log_in
from tests.web.seeded import measurements

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(600)]
AUDIT = (Path(__file__).parents[1] / "pages" / "audit.js").read_text()


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_a_measurement_is_watched_on_a_phone(
    chrome: Browser, product: Product, db: None, theme: str, django_db_blocker: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        policy = Policy.objects.filter(kind="weights").earliest("pk")
        measurements(f"{theme}-shop")
        MeasurementOrder.objects.all().delete()
        reference = f"repository:{theme}-shop"
        Repository.objects.create(name=f"{theme}-shop", kind="path", location="/srv/shop")
        made = MeasurementOrder.objects.create(
            policy=policy, version=0, wanted={"codebase": reference}, key=theme, state="running"
        )
    context = chrome.new_context(
        viewport={"width": 360, "height": 800},
        color_scheme=theme,  # type: ignore[arg-type]
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    log_in(page, product.url, "operator", seed.PASSWORD)
    page.goto(f"{product.url}/policies/{policy.name}/")
    section = page.locator("section", has=page.get_by_role("heading", name="On codebases"))
    expect(section.locator("#measured table").first).to_contain_text("Read a second")
    expect(section.get_by_role("button", name="Stop measuring on")).to_be_visible()
    expect(section.locator("select[name=codebase]")).to_contain_text(reference)
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        measurement_jobs.say(made, doing="reads the codebase", share=0.4)
    expect(section.locator("#measured")).to_contain_text("reads the codebase")
    section.scroll_into_view_if_needed()
    section.screenshot(path=tmp_path / "measured.png")
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(AUDIT) == []
    section.get_by_role("button", name="Stop measuring on").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.locator("body")).to_contain_text("It is stopped.")
    context.close()
