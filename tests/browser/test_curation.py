"""Curation and review in a real browser: ten tasks by keyboard only, a benchmark that two admit, labels, a promoted moment."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from composer_web.review import services as review
from composer_web.review.models import Draft, Label
from composer_web.review.questions import EXAMPLE
from composer_web.rollouts.models import Rollout
from composer_web.tasks import curation
from composer_web.tasks.models import Suite, Task, TaskReview
from tests.browser import seed
from tests.browser.conftest import PATIENCE_MS, Product
from tests.browser.screenshots import log_in, settle

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture
def reviewer(page: Page, product: Product) -> Page:
    log_in(page, product.url, "reviewer", seed.PASSWORD)
    return page


def ready(page: Page) -> None:
    """The part is there with its keys, and the next one is on its way."""
    expect(page.locator("#review[data-ready]")).to_be_visible()


def test_ten_tasks_by_keyboard_only(reviewer: Page, product: Product) -> None:
    page, world = reviewer, product.world
    curation.open_suite(name="by-hand", purpose="train", reviewed=False, actor=world.people["reviewer"])
    page.goto(f"{product.url}/tasks/review/?controls=true&suite=train&into=by-hand")
    ready(page)
    page.evaluate("window.notReloaded = true")
    page.keyboard.press("?")
    expect(page.locator("#key-help")).to_be_visible()
    page.keyboard.press("Escape")
    names, title = [], page.locator("#review h1")
    toast = page.locator("#review-toast")
    for place in range(10):
        ready(page)
        name = title.inner_text()
        names.append(name)
        if place == 0:
            page.keyboard.press("t")
            page.keyboard.type("odd one, plain")
            page.keyboard.press("Enter")
            expect(page.get_by_label("Remove tag odd one")).to_be_visible()
            page.keyboard.press("1")
            expect(page.locator("button[data-key='1']")).to_have_attribute("aria-pressed", "true")
            page.keyboard.press("u")
            expect(toast).to_have_text("Undone: 1 task changed back.")
            expect(page.locator("button[data-key='0']")).to_have_attribute("aria-pressed", "true")
        if place == 1:
            page.keyboard.press("n")
            page.keyboard.type("a plain one")
            page.keyboard.press("Enter")
        page.keyboard.press("a")
        expect(toast).to_have_text(f"Accepted: {name}. It is in by-hand.")
        expect(title).not_to_have_text(name)
    assert page.evaluate("window.notReloaded")
    assert list(Suite.objects.get(name="by-hand").versions.values_list("task__slug", flat=True)) == names
    assert {"odd one", "plain"} <= set(Task.objects.get(slug=names[0]).tags)
    assert Task.objects.get(slug=names[0]).split == ""
    assert TaskReview.objects.get(task_version__task__slug=names[1]).note == "a plain one"
    ready(page)
    before = title.inner_text()
    page.keyboard.press("j")
    expect(title).not_to_have_text(before)
    ready(page)
    rejected = title.inner_text()
    page.keyboard.press("r")
    expect(toast).to_have_text(f"Rejected: {rejected}.")
    expect(title).not_to_have_text(rejected)
    ready(page)
    name = title.inner_text()
    page.keyboard.press("e")
    page.keyboard.press("Control+a")
    page.keyboard.type("Say it in other words.")
    page.keyboard.press("Control+Enter")
    expect(toast).to_contain_text("Version 2 has the new words")
    expect(page.locator("#review")).to_contain_text("You wrote this version")
    assert Task.objects.get(slug=name).versions.count() == 2


def test_two_reviewers_admit_to_a_benchmark(reviewer: Page, product: Product, chrome: Browser) -> None:
    page = reviewer
    page.goto(f"{product.url}/suites/")
    page.fill("form[action='/suites/open/'] [name=name]", "bench")
    page.click("button:has-text('Open')")
    expect(page.locator(".notice")).to_contain_text("Suite bench is open")
    slug = Task.objects.filter(versions__controls_ok=True, versions__suites__name="held-out").earliest("pk").slug
    page.goto(f"{product.url}/tasks/review/{slug}/?into=bench")
    ready(page)
    page.keyboard.press("a")
    expect(page.locator("#review-toast")).to_contain_text("It joins bench when another reviewer accepts it too.")
    assert not Suite.objects.get(name="bench").versions.exists()
    other = chrome.new_context(reduced_motion="reduce")
    other.set_default_timeout(PATIENCE_MS)
    second = other.new_page()
    log_in(second, product.url, "operator", seed.PASSWORD)
    second.goto(f"{product.url}/tasks/review/{slug}/?into=bench")
    ready(second)
    expect(second.locator("#review")).to_contain_text("Hidden until you have reviewed it")
    second.keyboard.press("a")
    expect(second.locator("#review-toast")).to_contain_text("It is in bench.")
    second.goto(f"{product.url}/tasks/?suite=bench&review=admitted")
    expect(second.locator("td.strong")).to_have_text([slug])
    facet = second.locator("#facets a[aria-current]", has_text="bench")
    expect(facet).to_contain_text("1")
    facet.click()
    expect(second).not_to_have_url(re.compile("suite="))
    other.close()


def test_bulk_changes_are_undone(operator: Page, product: Product) -> None:
    page = operator
    page.goto(f"{product.url}/tasks/?source=procedural")
    settle(page)
    page.locator("[data-tick]").nth(0).check()
    page.locator("[data-tick]").nth(1).check()
    page.get_by_label("Tags").fill("seen")
    page.click("button:has-text('Add tags')")
    expect(page.locator(".notice")).to_contain_text("2 tasks changed.")
    assert Task.objects.filter(tags__contains=["seen"]).count() == 2
    settle(page)
    page.locator(".notice button:has-text('Undo')").click()
    expect(page.locator(".notice")).to_contain_text("Undone: 2 tasks changed back.")
    assert not Task.objects.filter(tags__contains=["seen"]).exists()
    settle(page)
    expect(page).to_have_url(f"{product.url}/tasks/?source=procedural")


def test_rollouts_are_labelled_by_keyboard(reviewer: Page, product: Product) -> None:
    page, operator = reviewer, product.world.people["operator"]
    queue = review.create_queue(name="walk", questionnaire=EXAMPLE, reviewers=2, actor=operator)
    review.fill(queue=queue, rollouts=Rollout.objects.filter(verdict="failed"), limit=3, actor=operator)
    page.goto(f"{product.url}/review/walk/")
    page.click("a:has-text('Review 3 rollouts')")
    for left in (3, 2, 1):
        ready(page)
        expect(page.locator("#review .crumbs")).to_contain_text(f"{left} in the queue")
        expect(page.locator(".question.is-current legend")).to_contain_text("Is the work right?")
        page.keyboard.press("3")
        expect(page.locator(".question.is-current legend")).to_contain_text("How good")
        page.keyboard.press("2")
        page.keyboard.press("1")
        page.keyboard.press("t")
        page.keyboard.type(f"words {left}")
        page.keyboard.press("Control+Enter")
        expect(page.locator("#review-toast")).to_contain_text("is labelled")
    expect(page.locator("#review")).to_contain_text("Nothing waits for you here")
    answers = {"verdict": "wrong", "quality": "2", "flags": ["reward_hack"]}
    labels = Label.objects.filter(item__queue=queue).order_by("pk").values_list("answers", flat=True)
    assert list(labels) == [{**answers, "note": f"words {left}"} for left in (3, 2, 1)]
    page.goto(f"{product.url}/rollouts/?label=walk:flags=reward_hack")
    expect(page.locator("td.strong")).to_have_count(3)


def test_turning_pages_keeps_the_answers(reviewer: Page, product: Product) -> None:
    page, operator = reviewer, product.world.people["operator"]
    long = Rollout.objects.filter(group__run=product.world.run, group__prompt_index=1, sample=0)
    queue = review.create_queue(name="long", questionnaire=EXAMPLE, reviewers=1, actor=operator)
    review.fill(queue=queue, rollouts=long, actor=operator)
    page.goto(f"{product.url}/review/long/next/")
    ready(page)
    for place in ("patch", "report", "reward"):
        expect(page.locator(f"#{place}")).to_be_visible()
    page.keyboard.press("2")
    page.locator("a:has-text('Turns from 21')").click()
    expect(page.locator("#turn-20 h3")).to_be_in_viewport()
    expect(page.locator("#turn-19")).to_have_count(0)
    expect(page.locator("[name='q-verdict'][value='partly']")).to_be_checked()
    page.locator("a:has-text('Turns before')").click()
    expect(page.locator("#turn-0 h3")).to_be_in_viewport()
    page.keyboard.press("4")
    page.keyboard.press("Enter")
    expect(page.locator("#review")).to_contain_text("Nothing waits for you here")
    label = Label.objects.get(item__queue=queue)
    assert label.answers == {"verdict": "partly", "quality": "4"}


def test_a_moment_is_promoted_to_a_task(reviewer: Page, product: Product) -> None:
    page = reviewer
    rollout = (
        Rollout.objects.filter(group__run=product.world.run, verdict="failed").exclude(artifact_key="").latest("pk")
    )
    page.goto(f"{product.url}/rollouts/{rollout.pk}/")
    page.locator(".turn a:has-text('Promote')").nth(1).click()
    expect(page.locator("#promote [name=turn]")).to_have_value("2")
    page.fill("#promote [name=turn]", "0")
    page.fill("#promote [name=slug]", "from-the-walk")
    page.fill("#promote [name=instruction]", "scale() is wrong. Fix it.")
    page.click("button:has-text('Make a draft')")
    expect(page.locator("h1")).to_have_text("from-the-walk")
    expect(page.locator("dl.facts")).to_contain_text(str(rollout.pk))
    page.click("button:has-text('Publish as a task')")
    expect(page.locator(".notice")).to_contain_text("its controls are on their way")
    page.click("a:has-text('To the task')")
    expect(page.locator("h1")).to_have_text("from-the-walk")
    draft = Draft.objects.get(slug="from-the-walk")
    assert draft.version is not None
    assert draft.version.bundle.source == "session"
