"""Script in whatever a model, a repository or a person can write does not run, also without the content policy.

`tests/web/accounts/test_attacks.py` reads what the server sends; here the pages' own modules have had their turn too.
"""

from __future__ import annotations

import pytest
from django.db import transaction
from playwright.sync_api import Browser, Page, expect

from composer_web.accounts.models import Project
from composer_web.core.artifacts import artifacts
from composer_web.gateway.models import Session
from composer_web.review.models import Queue
from composer_web.rollouts.models import Finding, Rollout
from composer_web.runs.models import Run
from tests.browser import seed
from tests.browser.conftest import PATIENCE_MS, Product
from tests.browser.screenshots import log_in, settle
from tests.web.accounts.test_attacks import PAYLOAD, poison
from trainer.types import Trajectory

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]
FILE = "a'\"><img xss=1 src=x onerror=alert(3)>.py"


def hostile_files() -> Rollout:
    """A trajectory whose patch, calls and outputs name a file like an element."""
    rollout = Rollout.objects.filter(verdict="passed", group__run__isnull=False).latest("pk")
    found = artifacts().get_model(rollout.artifact_key, Trajectory)
    text = found.model_dump_json().replace("helpers/", FILE.replace("\\", "").replace('"', '\\"') + "/")
    artifacts().put_model(rollout.artifact_key, Trajectory.model_validate_json(text))
    return rollout


def pages(run: Run, hostile: Rollout) -> dict[str, str]:
    """Where such texts are shown: lists, and what they lead to."""
    finding, task = Finding.objects.earliest("pk"), run.groups.earliest("pk").task_version.task
    queue, session = Queue.objects.earliest("pk"), Session.objects.earliest("pk")
    lists = ("", "runs", "rollouts", "findings", "tasks", "suites", "review", "evals", "sessions", "projects", "audit")
    return {
        **{name or "home": f"/{name}/".replace("//", "/") for name in (*lists, "alerts", "policies")},
        "run": f"/runs/{run.pk}/",
        "finding": f"/findings/{finding.pk}/",
        "task": f"/tasks/{task.slug}/",
        "review of tasks": "/tasks/review/",
        "queue": f"/review/{queue.name}/",
        "item": f"/review/{queue.name}/next/",
        "session": f"/gateway/sessions/{session.pk}/",
        "trajectory": f"/rollouts/{hostile.pk}/",
        "trajectory with odd texts": f"/rollouts/{run.groups.get(prompt_index=0).rollouts.earliest('pk').pk}/",
        "group": f"/groups/{hostile.group_id}/",
        "waffle": f"/rollouts/waffle/{run.pk}/",
    }


def look(page: Page) -> list[str]:
    """Elements that a text became."""
    found: list[str] = page.evaluate("[...document.querySelectorAll('[xss], [onerror]')].map(e => e.outerHTML)")
    return found


@pytest.mark.slow
def test_no_stored_script_runs(chrome: Browser, product: Product, db: None) -> None:
    with transaction.atomic():
        assert len(poison()) > 15
    Project.objects.update(name=PAYLOAD)
    found_at = pages(product.world.run, hostile_files())
    context = chrome.new_context(bypass_csp=True, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    page, ran = context.new_page(), []
    page.on("dialog", lambda dialog: (ran.append(f"{page.url}: {dialog.message}"), dialog.dismiss()))
    log_in(page, product.url, "admin", seed.PASSWORD)
    wrong: dict[str, list[str]] = {}
    for name, path in found_at.items():
        answer = page.goto(product.url + path)
        assert answer is not None and answer.ok, f"{name}: {path}"
        settle(page)
        if name.startswith("trajectory"):
            page.keyboard.press("j")
            page.keyboard.press("/")
            page.keyboard.type("script")
            page.keyboard.press("Enter")
            settle(page)
        if found := look(page):
            wrong[name] = found[:3]
    assert not wrong
    assert not ran, ran
    page.goto(f"{product.url}/runs/")
    page.evaluate("text => document.body.insertAdjacentHTML('beforeend', text)", PAYLOAD)  # it would have been seen
    expect(page.locator("[xss]").first).to_be_attached()
    page.wait_for_function("() => !document.querySelector('[xss]') || document.querySelector('[xss]').complete")
    assert ran and look(page)
    context.close()
