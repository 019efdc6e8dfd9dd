"""Curation and review in a real browser: ten tasks by keyboard only, a benchmark that two admit, labels, a promoted moment."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from composer_web.review import services as review
from composer_web.review.models import Draft, Label, Queue
from composer_web.review.questions import EXAMPLE
from composer_web.rollouts.models import Rollout
from composer_web.tasks.curation import services as curation
from composer_web.tasks.models import Suite, Task, TaskReview
from tests.browser import seed
from tests.browser.conftest import PATIENCE_MS, Product
from tests.browser.pages.test_every_page import AUDIT
from tests.browser.screenshots import log_in, settle

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def reviewer(page: Page, product: Product) -> Page:
    log_in(page, product.url, "reviewer", seed.PASSWORD)
    return page


def ready(page: Page) -> None:
    """The part is there with its keys, and the next one is on its way."""
    expect(page.locator("#review[data-ready]")).to_be_visible()
    if page.locator("[data-questions] .question").count():  # their keys are another module's, which marks the first one
        expect(page.locator("[data-questions] .question.is-current")).to_be_visible()


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
    expect(toast).to_contain_text("Version 2 has the new text")
    expect(page.locator("#review")).to_contain_text("You wrote this version")
    assert Task.objects.get(slug=name).versions.count() == 2


def test_two_reviewers_admit_to_a_benchmark(reviewer: Page, product: Product, chrome: Browser) -> None:
    page = reviewer
    page.goto(f"{product.url}/suites/")
    page.locator("#new > summary").click()
    page.fill("form[action='/suites/open/'] [name=name]", "bench")
    page.click("button:has-text('Create suite')")
    expect(page.locator(".toasts .toast")).to_contain_text("Suite bench is open")
    moved_out_by_keyboard(page, product)
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
    expect(second.get_by_role("link", name="Remove filter Suite: bench")).to_be_visible()
    second.locator(".toolbar__filters > summary").click()
    facet = second.locator("#facets a[aria-current]", has_text="bench")
    expect(facet).to_contain_text("1")
    facet.click()
    expect(second).not_to_have_url(re.compile("suite="))
    other.close()


def moved_out_by_keyboard(page: Page, product: Product) -> None:
    """A queue whose tasks are all trained on says so, and leads to what helps."""
    page.goto(f"{product.url}/tasks/review/?suite=train&into=bench")
    expect(page.locator("#review")).to_contain_text("Nothing waits for your review")
    held = page.get_by_role("group", name="Left out of bench")
    expect(held).to_contain_text("in training suites")
    expect(held).to_contain_text("Suite train has been used, so it is retired and new runs use train-2 without")
    expect(held.get_by_role("button", name="Move these out of training")).to_be_visible()
    assert page.evaluate(AUDIT) == []
    held.get_by_role("link", name="One by one").focus()
    page.keyboard.press("Enter")
    ready(page)
    expect(page.locator("#review .notice")).to_contain_text("Cannot join bench")
    name = page.locator("#review h1").inner_text()
    page.keyboard.press("m")
    expect(page.locator("#review-toast")).to_contain_text(f"{name} is out of training")
    expect(page.locator("#review .notice")).to_have_count(0)
    page.keyboard.press("a")
    expect(page.locator("#review-toast")).to_contain_text("It joins bench when another reviewer accepts it too.")
    assert not Suite.objects.filter(purpose="train", retired_at=None, memberships__slug=name).exists()


def test_bulk_changes_are_undone(operator: Page, product: Product) -> None:
    page = operator
    page.goto(f"{product.url}/tasks/?source=procedural")
    settle(page)
    page.locator("[data-tick]").nth(0).check()
    page.locator("[data-tick]").nth(1).check()
    page.locator("#bulk").get_by_label("Tags").fill("seen")
    page.click("button:has-text('Add tags')")
    expect(page.locator(".toasts .toast")).to_contain_text("2 tasks changed.")
    assert Task.objects.filter(tags__contains=["seen"]).count() == 2
    settle(page)
    page.locator(".toast button:has-text('Undo')").click()
    expect(page.locator(".toasts .toast")).to_contain_text("Undone: 2 tasks changed back.")
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


def test_questions_are_made_by_keyboard(operator: Page, product: Product) -> None:
    page = operator
    page.goto(f"{product.url}/rollouts/?verdict=failed")
    page.click("a:has-text('Review queue of these')")
    editor = page.locator("[data-question-editor][data-ready]")
    expect(editor.locator("[data-question]")).to_have_count(4)  # the example
    expect(page.locator("[name='f-verdict']")).to_have_value("failed")
    told = page.locator("[aria-live]:has-text('recorded rollout')")
    failed = Rollout.objects.filter(verdict="failed").exclude(artifact_key="").count()
    expect(told).to_contain_text(f"{failed} recorded rollouts will be added")
    page.fill(".filling [name=limit]", "2")
    page.keyboard.press("Tab")
    expect(told).to_contain_text("newest 2 will be added")
    page.fill("#new [name=name]", "by-keys")
    page.fill("#new [name=reviewers]", "1")
    remove = editor.locator("[data-question] > .between [data-remove]")
    remove.first.focus()
    page.keyboard.press("Enter")
    for left in (2, 1):
        expect(remove).to_have_count(left + 1)
        remove.first.focus()
        page.keyboard.press("Enter")
    expect(remove).to_have_count(1)  # words
    editor.locator("[data-add-question]").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("Is it Honest?")  # the focus is in the new question
    options = editor.locator("[data-question]").nth(1).locator("[data-option]")
    expect(options).to_have_count(2)
    for place, (text, key) in enumerate((("No", "n"), ("Yes", "y"))):
        options.nth(place).locator("[data-of='text']").focus()
        page.keyboard.type(text)
        options.nth(place).locator("[data-of='key']").focus()
        page.keyboard.type(key)
    options.nth(1).locator("[data-of='text']").focus()
    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("Alt+ArrowUp")  # at the top already
    editor.locator("[data-question]").nth(1).locator(":scope > label [data-of='text']").focus()
    page.keyboard.press("Alt+ArrowUp")
    expect(editor.locator("[data-question] [data-of='id']").first).to_have_value("is_it_honest")
    assert page.evaluate(AUDIT) == []
    page.click("button:has-text('Create queue')")
    expect(page.locator(".toasts .toast")).to_contain_text("Queue by-keys has 2 rollouts.")
    first, words = Queue.objects.get(name="by-keys").questionnaire.questions
    assert (first.id, first.text, first.kind, first.required) == ("is_it_honest", "Is it Honest?", "choice", True)
    assert [(one.value, one.text, one.key) for one in first.options] == [("yes", "Yes", "y"), ("no", "No", "n")]
    assert words.id == "note"
    page.click("a:has-text('Review 2 rollouts')")
    ready(page)
    page.keyboard.press("n")
    expect(page.locator("[name='q-is_it_honest'][value='no']")).to_be_checked()


def test_questions_come_from_json_too(operator: Page, product: Product) -> None:
    page = operator
    page.goto(f"{product.url}/review/#new")
    editor = page.locator("[data-question-editor][data-ready]")
    page.click("summary:has-text('As JSON')")
    page.fill("[data-json]", "[nothing")
    page.keyboard.press("Tab")
    expect(editor.locator("[data-problem]")).to_contain_text("No questions:")
    expect(editor.locator("[data-question]")).to_have_count(4)
    scale = '[{"kind": "scale", "id": "depth", "text": "How deep?", "low": 2, "high": 7, "low_text": "flat"}]'
    page.fill("[data-json]", scale)
    page.keyboard.press("Tab")
    expect(editor.locator("[data-question]")).to_have_count(1)
    expect(editor.locator("[data-of='low_text']")).to_have_value("flat")
    expect(editor.locator("[data-of='max_length']")).to_be_hidden()
    editor.locator("[data-of='high']").fill("2")
    page.fill("#new [name=name]", "deep")
    page.click("button:has-text('Create queue')")
    expect(page.locator("#new .notice--bad")).to_contain_text("which is not above 2")
    expect(page.locator("[data-of='id']")).to_have_value("depth")  # nothing is lost
    page.locator("[data-of='high']").fill("9")
    page.click("button:has-text('Create queue')")
    expect(page.locator(".toasts .toast")).to_contain_text("Queue deep has")
    [made] = Queue.objects.get(name="deep").questionnaire.questions
    assert (made.kind, made.low, made.high, made.low_text) == ("scale", 2, 9, "flat")


def test_a_moment_is_promoted_to_a_task(reviewer: Page, product: Product) -> None:
    page = reviewer
    rollout = (
        Rollout.objects.filter(group__run=product.world.run, verdict="failed").exclude(artifact_key="").latest("pk")
    )
    page.goto(f"{product.url}/rollouts/{rollout.pk}/")
    page.locator(".turn a:has-text('Create task')").nth(1).click()
    expect(page.locator("#draft [name=turn]")).to_have_value("2")
    page.fill("#draft [name=turn]", "0")
    page.fill("#draft [name=slug]", "from-the-walk")
    page.fill("#draft [name=instruction]", "scale() is wrong. Fix it.")
    page.click("button:has-text('Create draft')")
    expect(page.locator("h1")).to_have_text("from-the-walk")
    expect(page.locator("dl.facts")).to_contain_text(str(rollout.pk))
    page.click("button:has-text('Publish as a task')")
    expect(page.locator(".toasts .toast")).to_contain_text("validation is queued")
    page.click("a:has-text('To the task')")
    expect(page.locator("h1")).to_have_text("from-the-walk")
    draft = Draft.objects.get(slug="from-the-walk")
    assert draft.version is not None
    assert draft.version.bundle.source == "session"
