"""The three daily jobs on an empty installation, by mouse and by keyboard alone: start a run, review its failures, and
curate a task into a scored benchmark release.

Nothing stands in for anything: workers create the sample data and play the rollouts, a trainer trains, an engine answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from composer_web.accounts.models import User
from composer_web.celery import app
from composer_web.env import env
from composer_web.evals.models import Evaluation
from composer_web.gateway.serving import pipeline, transcripts
from composer_web.review.models import Annotation
from composer_web.runs import logs
from composer_web.runs.models import Run
from composer_web.tasks.models import Suite
from tests.browser import seed, walking
from tests.browser.conftest import PATIENCE_MS, serve, strict_tab
from tests.browser.hands import Hand, Keyboard, Mouse
from tests.browser.walking import free_port
from tests.web.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(1800)]
db, people = walking.db, walking.people

LONG_MS = 900_000
"""How long sample data, a run or an evaluation may take beside everything else that a machine does."""


@pytest.fixture
def address(people: dict[str, User], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A web server over a database with people in it and nothing else, an engine, workers and a train worker."""
    port = free_port()
    monkeypatch.setattr(env(), "inference_url", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(pipeline, "known", transcripts.Transcripts())
    app.control.purge()
    product = Product(tmp_path, port, NO_PROXY="127.0.0.1")
    product.commands["workers"] = [*product.worker, "-Q", "control,io,maintenance,rollout,eval,build", "-c", "6"]
    for name in ("inference", "workers", "train", "beat"):
        product.start(name)
    try:
        with serve() as url:
            yield url
    finally:
        product.stop()


@pytest.fixture
def second(chrome: Browser) -> Iterator[BrowserContext]:
    made = chrome.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    made.set_default_timeout(PATIENCE_MS)
    yield made
    made.close()


@pytest.mark.parametrize("hand", [Mouse(), Keyboard()], ids=["mouse", "keyboard"])
def test_the_three_daily_jobs(address: str, context: BrowserContext, second: BrowserContext, hand: Hand) -> None:
    with strict_tab(context) as page, strict_tab(second) as other:
        log_in(page, address, "operator", hand)
        start_a_run(page, hand)
        review_its_failures(page, hand)
        draft_a_benchmark(page, hand)
        admit_a_task(page, hand, "It joins bench when another reviewer accepts it too.")
        log_in(other, address, "reviewer", hand)
        other.goto(f"{address}/tasks/review/?into=bench")
        admit_a_task(other, hand, "It is in bench.")
        publish_and_score(page, hand)


def log_in(page: Page, address: str, who: str, hand: Hand) -> None:
    page.goto(f"{address}/login/")
    hand.write(page.get_by_label("User name"), who)
    hand.write(page.get_by_label("Password", exact=True), seed.PASSWORD)
    hand.press(page.get_by_role("button", name="Log in"))
    expect(page).to_have_url(f"{address}/")


def start_a_run(page: Page, hand: Hand) -> None:
    """Sample data from the checklist, then two presses from home to a run of a preset, which ends by itself."""
    hand.press(page.get_by_role("button", name="Load sample data"))
    expect(page.locator(".checklist li.is-done").first).to_be_visible(timeout=LONG_MS)
    expect(page.get_by_text("creating sample data")).to_have_count(0, timeout=LONG_MS)
    before = hand.presses
    hand.press(page.locator("#start-preset"))
    hand.press(page.get_by_role("button", name=re.compile("^Start .*smoke", re.I)))
    assert hand.presses - before <= 2
    expect(page.locator("#run-head")).to_contain_text("finished", timeout=LONG_MS)
    assert Run.objects.get().state == "finished"
    kinds = {process.partition("@")[0] for process in logs.processes(Run.objects.get())}
    assert kinds >= {"trainer", "control"}, "the trainer's and the workers' log lines"


def review_its_failures(page: Page, hand: Hand) -> None:
    """At most two presses to the worst failure; one key is a label."""
    before = hand.presses
    hand.press(page.locator("#run-failures a").first)
    expect(page.locator("[data-trajectory][data-ready]")).to_be_visible()
    assert hand.presses - before <= 2
    expect(page.locator(".pagehead")).to_contain_text("failed")
    if isinstance(hand, Keyboard):
        page.keyboard.press("2")
    else:
        hand.press(page.locator("[data-annotate='2']"))
    expect(page.locator("[data-annotate='2']")).to_have_attribute("aria-pressed", "true")
    assert Annotation.objects.filter(removed_at=None).values_list("kind", "value").get() == ("verdict", "bad")


def draft_a_benchmark(page: Page, hand: Hand) -> None:
    hand.visit(page, "Suites")
    hand.press(page.locator("#new > summary"))
    form = page.locator("form[action='/suites/open/']")
    hand.write(form.get_by_label("Name"), "bench")
    expect(form.get_by_label("Two reviewers admit each task")).to_be_checked()
    hand.press(form.get_by_role("button", name="Create suite"))
    expect(page.locator(".toasts .toast")).to_contain_text("Suite bench is open")
    page.keyboard.press("Escape")
    hand.press(page.get_by_role("link", name="Add via review").first)


def admit_a_task(page: Page, hand: Hand, says: str) -> None:
    """One key for each of the two reviewers."""
    expect(page.locator("#review[data-ready]")).to_be_visible()
    title = page.locator("#review h1").inner_text()
    if isinstance(hand, Keyboard):
        page.keyboard.press("a")
    else:
        hand.press(page.get_by_role("button", name=re.compile("^Accept")))
    expect(page.locator("#review-toast")).to_have_text(f"Accepted: {title}. {says}")


def publish_and_score(page: Page, hand: Hand) -> None:
    assert Suite.objects.get(name="bench").memberships.count() == 1
    hand.visit(page, "Suites")
    hand.press(page.get_by_role("link", name="bench", exact=True))
    hand.press(page.get_by_role("link", name="Publish", exact=True))
    form = page.get_by_role("form", name="Publish a release")
    expect(form.get_by_label("Suite")).to_have_value("bench")
    hand.write(form.get_by_label("Benchmark"), "ours")
    hand.press(form.get_by_role("button", name="Publish"))
    expect(page.get_by_role("heading", level=1)).to_have_text("ours-1")
    hand.press(page.locator("#run > summary"))
    run = page.get_by_role("form", name="Run a policy")
    hand.choose(run.get_by_label("Policy"), "base")
    hand.write(run.get_by_label("Samples"), "2")
    hand.press(run.get_by_role("button", name="Run"))
    rows = page.locator("section", has=page.get_by_role("heading", name="Leaderboard")).locator("tbody tr")
    expect(rows).to_have_count(1, timeout=LONG_MS)
    expect(rows).to_contain_text("base@0")
    hand.press(rows.get_by_role("link", name="base@0"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("base@0")
    assert Evaluation.objects.filter(release__isnull=False).get().state == "finished"
