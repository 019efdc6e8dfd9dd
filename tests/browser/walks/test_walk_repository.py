"""From a team's own repository to a scored benchmark release, entirely in the browser, over an empty product with real workers.

`WALK_PICTURES=docs/img` keeps a picture of each station, light, dark and narrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from composer_web.accounts.models import User
from composer_web.env import REPOSITORY, env
from composer_web.evals.models import Evaluation
from composer_web.policies.services import import_base
from composer_web.tasks.models import GeneratorRun, Suite, TaskReview
from tests.browser import seed, walking
from tests.browser.conftest import PATIENCE_MS, serve, strict_tab
from tests.browser.screenshots import log_in
from tests.browser.walking import free_port, picture
from tests.web import workshop

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(1800)]
db, people = walking.db, walking.people

LONG_MS = 600_000
"""How long an installation, the generators or an evaluation may take beside everything else that a machine does."""


@pytest.fixture
def address(people: dict[str, User], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty product: the shipped policy, a web server, workers, and a folder from which repositories may come."""
    import_base(path=REPOSITORY / "policies" / "base", name="base", toy=True)
    monkeypatch.setenv("OPENCOMPOSER_GIT_ROOTS", str(tmp_path))
    env.cache_clear()
    workshop.write_repository(tmp_path / workshop.NAME)
    port = free_port()
    with workshop.registry() as index, serve() as url, workshop.workers(tmp_path, port, roots=tmp_path, index=index):
        yield url
    env.cache_clear()


@pytest.fixture
def second(chrome: Browser) -> Iterator[BrowserContext]:
    made = chrome.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    made.set_default_timeout(PATIENCE_MS)
    yield made
    made.close()


def ready(page: Page) -> None:
    expect(page.locator("#review[data-ready]")).to_be_visible()


def accept_all(page: Page, count: int) -> list[str]:
    """By keyboard: every task that waits; their names."""
    names, title, toast = [], page.locator("#review h1"), page.locator("#review-toast")
    for _ in range(count):
        ready(page)
        names.append(title.inner_text())
        page.keyboard.press("a")
        expect(toast).to_contain_text(f"Accepted: {names[-1]}.")
        expect(title).not_to_have_text(names[-1])
    expect(page.locator("#review")).to_contain_text("Nothing waits for your review")
    return names


def test_from_a_repository_to_a_scored_release(
    address: str, people: dict[str, User], context: BrowserContext, second: BrowserContext, tmp_path: Path
) -> None:
    with strict_tab(context) as page, strict_tab(second) as other:
        log_in(page, address, "operator", seed.PASSWORD)
        log_in(other, address, "reviewer", seed.PASSWORD)
        picture(page, "walk-1-home", "dark", "narrow")
        install(page, address, tmp_path)
        made = generate(page)
        open_benchmark(page)
        rejected = review(page, made)
        admit(other, address, made, rejected)
        release(page, address, made - 1)
        score(page)


def install(page: Page, address: str, folder: Path) -> None:
    """The repository becomes an environment whose log is read while it is made."""
    page.goto(f"{address}/environments/")
    page.locator(".empty").get_by_role("link", name="Add your own repository").click()
    page.get_by_label("Source").select_option("path")
    page.get_by_label("Address, path or package").fill("/etc")
    page.get_by_role("button", name="Add and build").click()
    expect(page.get_by_text("is not below a folder")).to_be_visible()
    page.get_by_label("Address, path or package").fill(str(folder / workshop.NAME))
    picture(page, "walk-2-add", "dark", "narrow")
    page.get_by_role("button", name="Add and build").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(workshop.NAME)
    expect(page.locator("#build-log")).to_contain_text("goal 1", timeout=LONG_MS)
    expect(page.get_by_text("Building since")).to_be_visible()
    picture(page, "walk-3-building", "dark", "narrow")
    expect(page.locator(".pagehead .badge")).to_have_text("ready", timeout=LONG_MS)
    expect(page.locator("dl.facts")).to_contain_text("7 of 7, three times")
    expect(page.locator("#build-log")).to_contain_text("accepted: ")
    picture(page, "walk-4-ready", "dark", "narrow")


def generate(page: Page) -> int:
    """Tasks of the held-out side of the repository; how many."""
    page.get_by_role("link", name="Make tasks from it", exact=True).click()
    expect(page.get_by_label("Packages")).to_have_values([workshop.NAME])
    page.get_by_label("Name", exact=True).fill("fresh")
    page.get_by_label("Purpose").select_option("benchmark")
    page.get_by_label("Tasks per generator").fill("3")
    page.get_by_role("button", name="Make tasks").click()
    job = page.locator("#jobs tbody tr")
    expect(job).to_contain_text(re.compile("queued|running|finished"))
    picture(page, "walk-5-generating", "dark", "narrow")
    expect(job).to_contain_text("finished", timeout=LONG_MS)
    expect(page.locator("#rows")).to_contain_text("mutation")
    picture(page, "walk-6-generated", "dark", "narrow")
    job.get_by_role("link", name="fresh").click()
    count = Suite.objects.get(name="fresh").memberships.count()
    assert count == sum(GeneratorRun.objects.values_list("kept", flat=True)) >= 2
    passed = page.locator(".figure", has_text="Validated").locator(".figure__value")
    expect(passed).to_have_text(str(count), timeout=LONG_MS)
    picture(page, "walk-7-suite", "dark", "narrow")
    return count


def open_benchmark(page: Page) -> None:
    """The draft of the benchmark: a suite that only admitted tasks join."""
    page.get_by_role("navigation", name="Tasks").get_by_role("link", name="Suites").click()
    page.locator("#new > summary").click()
    form = page.locator("form[action='/suites/open/']")
    form.get_by_label("Name").fill("bench")
    form.get_by_role("button", name="Create suite").click()
    expect(page.locator(".toasts .toast")).to_contain_text("Suite bench is open")
    page.get_by_role("navigation", name="Tasks").get_by_role("link", name="Suites").click()
    page.get_by_role("link", name="fresh", exact=True).click()
    page.get_by_role("link", name="Review its tasks").click()


def review(page: Page, count: int) -> str:
    """The first reviewer works by keyboard: tags, takes one back, rejects one, accepts the others; the rejected one."""
    ready(page)
    title, toast = page.locator("#review h1"), page.locator("#review-toast")
    page.keyboard.press("i")
    page.keyboard.type("bench")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"into=bench"))
    ready(page)
    rejected = title.inner_text()
    page.keyboard.press("t")
    page.keyboard.type("too small")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Remove tag too small")).to_be_visible()
    picture(page, "walk-8-review", "dark", "narrow")
    page.keyboard.press("r")
    expect(toast).to_have_text(f"Rejected: {rejected}.")
    expect(title).not_to_have_text(rejected)
    names = accept_all(page, count - 1)
    assert rejected not in names and not Suite.objects.get(name="bench").versions.exists()
    picture(page, "walk-9-reviewed", "dark", "narrow")
    return rejected


def admit(page: Page, address: str, count: int, rejected: str) -> None:
    """The second reviewer agrees with the first, who is not seen before that; the accepted tasks join."""
    page.goto(f"{address}/tasks/review/?suite=fresh&into=bench")
    ready(page)
    expect(page.locator("#review")).to_contain_text("Hidden until you have reviewed it")
    toast, title = page.locator("#review-toast"), page.locator("#review h1")
    for _ in range(count):
        ready(page)
        name = title.inner_text()
        page.keyboard.press("r" if name == rejected else "a")
        expect(toast).to_contain_text(f"{name}. It is in bench." if name != rejected else f"Rejected: {name}.")
        expect(title).not_to_have_text(name)
    assert TaskReview.objects.count() == 2 * count
    page.get_by_role("link", name="To suite bench").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("bench")


def release(page: Page, address: str, count: int) -> None:
    page.goto(f"{address}/suites/bench/")
    expect(page.locator("tbody tr")).to_have_count(count)
    picture(page, "walk-10-draft", "dark", "narrow")
    page.get_by_role("link", name="Publish", exact=True).click()
    form = page.get_by_role("form", name="Publish a release")
    expect(form.get_by_label("Suite")).to_have_value("bench")
    form.get_by_label("Benchmark").fill("ours")
    form.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("ours-1")
    expect(page.get_by_text("unreviewed")).to_have_count(0)
    expect(page.get_by_text("None of its tasks was found in a training suite.")).to_be_visible(timeout=LONG_MS)


def score(page: Page) -> None:
    """The shipped policy over the release: two passes over each task, in real sandboxes."""
    page.locator("#run > summary").click()
    form = page.get_by_role("form", name="Run a policy")
    form.get_by_label("Policy").select_option("base")
    form.get_by_label("Samples").fill("2")
    form.get_by_label("Output $ per 1M").fill("2")
    form.get_by_role("button", name="Run").click()
    expect(page.get_by_text("The evaluation is on its way")).to_be_visible()
    picture(page, "walk-11-release", "dark", "narrow")
    rows = page.locator("section", has=page.get_by_role("heading", name="Leaderboard")).locator("tbody tr")
    expect(rows).to_have_count(1, timeout=LONG_MS)
    expect(rows).to_contain_text("base@0")
    expect(page.locator("[data-pareto][data-drawn]")).to_have_count(2)
    picture(page, "walk-12-leaderboard", "dark", "narrow")
    made = Evaluation.objects.get()
    assert (
        made.state == "finished" and made.results["pass1"] is not None and made.results["verdicts"]["infra_error"] == 0
    )
    rows.get_by_role("link", name="base@0").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("base@0")
    picture(page, "walk-13-score", "dark", "narrow")
