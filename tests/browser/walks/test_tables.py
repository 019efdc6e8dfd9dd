"""Lists by mouse and keyboard: where they begin, rows, preview, columns, filters, saved views and actions on several rows."""

from __future__ import annotations

import math
import random
import re

import pytest
from django.templatetags.static import static
from playwright.sync_api import Page, ViewportSize, expect

from composer_web.evals.models import Evaluation
from composer_web.review.models import Annotation
from composer_web.rollouts.models import Finding
from composer_web.ui.templatetags import ui
from tests.browser.conftest import Product
from tests.browser.screenshots import settle

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]
DESK: ViewportSize = {"width": 1440, "height": 900}
WIDE: ViewportSize = {"width": 1800, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}

FIRST_ROW = 220
"""Pixels from the top of the page to the first row of a list, at most."""
LISTS = (
    "/runs/", "/runs/sweeps/", "/runs/studies/", "/runs/templates/", "/rollouts/", "/rollouts/exports/", "/findings/", "/tasks/",
    "/tasks/changes/", "/tasks/disagreements/", "/suites/", "/environments/", "/evaluations/", "/evaluations/releases/",
    "/policies/", "/datasets/", "/review/", "/annotations/", "/drafts/", "/gateway/sessions/", "/alerts/", "/alerts/rules/",
    "/alerts/webhooks/", "/alerts/deliveries/", "/notifications/", "/projects/", "/tokens/", "/generators/", "/imports/",
)  # fmt: skip


PREVIEWS = {
    "/runs/": "Step", "/tasks/": "Instruction", "/evaluations/": "Worst tasks", "/policies/": "Newest scores",
    "/findings/": "Evidence", "/suites/": "Newest scores", "/review/": "Questions",
}  # fmt: skip
"""List → words of what is shown beside its first row."""


def test_lists_begin_at_the_top_and_fit_a_phone(operator: Page, product: Product) -> None:
    page, late, wide = operator, {}, []
    for path in LISTS:
        page.set_viewport_size(DESK)
        page.goto(product.url + path)
        top = page.evaluate(
            """() => { const row = document.querySelector('main table tbody tr, main .empty');
            return row ? row.getBoundingClientRect().top + scrollY : null }"""
        )
        if top is None or top > FIRST_ROW:
            late[path] = top
        page.set_viewport_size(PHONE)
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wide.append(path)
    assert not late and not wide, f"rows begin too low: {late}; the page scrolls sideways: {wide}"


def test_charts_and_pages_write_numbers_alike(operator: Page, product: Product) -> None:
    """The formatter of charts and ticking durations against that of tiles and tables, over ties, edges of units and chance."""
    chance = random.Random(3)
    values: list[float] = [
        0, 1, 2.0, -1, 0.5, 0.05, 0.0547, 0.0003, 0.00003, 3.1e-7, -0.0625, 0.03125, 0.3125, 0.0005, 0.9994, 0.9996,
        0.99951, 1.005, 2.125, 2.375, 14.72, 59.94, 59.97, 62.5, 99.995, 99.996, 100.5, 101.5, 820, 999.5, 1234.5, 3599.4,
        3599.6, 7245, 9999.4, 9999.6, 10_000, 12_345, 12_350, 99_950, 999_499, 999_500, 1_234_567, 9.995e8, 1.5e9, 2.5e12,
        1023, 1024, 1536, 1048576.5,
    ]  # fmt: skip
    values += [math.copysign(10 ** chance.uniform(-8, 12), chance.choice((1, 1, -1))) for _ in range(300)]
    values += [chance.randrange(1, 4096) / 2 ** chance.randrange(0, 12) for _ in range(300)]
    units = ("", "%", "s", "bytes", "bytes/s")
    pairs = [(value, unit) for value in values for unit in units if value >= 0 or unit in ("", "%")]
    operator.goto(f"{product.url}/runs/")
    written = operator.evaluate(
        """async ([module, pairs]) => { const { number } = await import(module);
        return pairs.map(([value, unit]) => number(value, unit)) }""",
        [static("js/format.js"), pairs],
    )
    assert [
        wrong
        for wrong in zip(pairs, written, [ui.quantity(*pair) for pair in pairs], strict=True)
        if wrong[1] != wrong[2]
    ] == []


def opened(page: Page, url: str) -> None:
    """A live list that has fetched its rows once more after joining, so that they stay."""
    with page.expect_response(lambda answer: answer.url == url and answer.request.resource_type == "xhr"):
        page.goto(url)
    settle(page)


def test_rows_open_and_are_shown_beside_the_list(operator: Page, product: Product) -> None:
    page, rows, preview = operator, operator.locator("#rows tbody tr"), operator.locator("#preview")
    page.set_viewport_size(WIDE)
    page.goto(f"{product.url}/rollouts/")
    links = page.locator("td.strong a")
    names = [links.nth(place).inner_text() for place in range(3)]
    page.keyboard.press("j")
    expect(links.first).to_be_focused()
    expect(preview.locator("h2")).to_contain_text(names[0])
    page.keyboard.press("j")
    expect(preview.locator("h2")).to_contain_text(names[1])
    page.keyboard.press("k")
    expect(links.first).to_be_focused()
    rows.nth(2).locator("td").nth(2).hover()
    expect(preview.locator("h2")).to_contain_text(names[2])
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"/rollouts/{names[0].removeprefix('#')}/"))
    for path, words in PREVIEWS.items():
        page.goto(product.url + path)
        rows.first.locator("td").nth(3).hover()
        expect(preview).to_contain_text(words)
    page.goto(f"{product.url}/suites/")
    rows.first.locator("td").nth(3).hover()
    expect(preview.locator("time[data-relative]")).to_have_text(re.compile(r" ago$|^just now$"))
    page.goto(f"{product.url}/runs/")
    target = links.first.get_attribute("href")
    rows.first.locator("td").nth(3).click()
    expect(page).to_have_url(f"{product.url}{target}")


def test_columns_are_sized_chosen_and_stay_in_sight(operator: Page, product: Product) -> None:
    page = operator
    page.set_viewport_size(DESK)
    head = page.locator("#rows th", has_text="Source")
    opened(page, f"{product.url}/tasks/")

    def width() -> float:
        return float(head.evaluate("head => head.getBoundingClientRect().width"))

    edge, before = head.locator(".resize").bounding_box(), width()
    assert edge is not None
    page.mouse.move(edge["x"] + 2, edge["y"] + 5)
    page.mouse.down()
    page.mouse.move(edge["x"] + 82, edge["y"] + 5)
    page.mouse.up()
    assert width() == pytest.approx(before + 80, abs=4)
    head.get_by_role("link").focus()
    page.keyboard.press("Shift+ArrowRight")
    assert width() == pytest.approx(before + 96, abs=4)
    opened(page, f"{product.url}/tasks/")
    expect(head.locator(".resize")).to_be_attached()
    assert width() == pytest.approx(before + 96, abs=4)
    head.get_by_role("link").focus()
    page.keyboard.press("Shift+Home")
    assert width() == pytest.approx(before, abs=4)

    page.mouse.wheel(0, 600)
    page.wait_for_function("() => scrollY > 300")
    bar, box = page.locator(".topbar").bounding_box(), head.bounding_box()
    assert bar is not None and box is not None
    assert box["y"] == pytest.approx(bar["height"], abs=2), "the head sticks below the bar"

    page.locator("#columns").click()
    for name in ("Source", "Category"):
        page.get_by_role("checkbox", name=name, exact=True).uncheck()
    page.get_by_role("checkbox", name="Family", exact=True).check()
    page.locator("form[data-columns] button").click()
    expect(page.locator("#rows th", has_text="Family")).to_be_visible()
    expect(head).to_have_count(0)


def test_filters_apply_at_once_and_are_kept_as_a_view(operator: Page, product: Product) -> None:
    page, chip = operator, operator.get_by_role("link", name="Remove filter Severity: high")
    page.goto(f"{product.url}/findings/")
    page.locator(".toolbar__filters > summary").click()
    page.get_by_role("combobox", name="Severity").select_option("high")
    expect(page).to_have_url(re.compile(r"/findings/\?severity=high$"))
    expect(chip).to_be_visible()
    page.locator("#views").click()
    page.get_by_label("Save as").fill("Severe")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#messages, .messages, .toasts").first).to_contain_text("View saved")
    chip.click()
    expect(page).to_have_url(f"{product.url}/findings/")
    page.locator(".toolbar__filters > summary").click()
    run = page.get_by_role("combobox", name="Run", exact=True)
    run.focus()
    expect(page.locator("#run-names option")).not_to_have_count(0)
    run.fill("small repos")
    run.press("Enter")
    expect(page.get_by_role("link", name="Remove filter Run: small repos")).to_be_visible()
    page.locator("#views").click()
    page.get_by_role("link", name="Severe").click()
    expect(page).to_have_url(f"{product.url}/findings/?severity=high")


def test_what_is_ticked_is_acted_on_together(operator: Page, product: Product) -> None:
    page, bar = operator, operator.locator("#bulk")
    page.goto(f"{product.url}/rollouts/")
    expect(bar).to_be_hidden()
    for box in page.locator("[data-tick]").all()[:2]:
        box.check()
    expect(bar).to_contain_text("2 selected")
    page.get_by_role("textbox", name="Tag", exact=True).or_(page.get_by_role("combobox", name="Tag", exact=True)).fill(
        "odd-end"
    )
    page.get_by_role("button", name="Add tag").click()
    expect(page.locator("body")).to_contain_text("2 rollouts: tag odd-end")
    assert Annotation.objects.filter(kind="tag", value="odd-end", removed_at=None).count() == 2

    page.goto(f"{product.url}/runs/")
    pause, archive = bar.get_by_role("button", name="Pause"), bar.get_by_role("button", name="Archive")
    page.get_by_role("checkbox", name="Select RL on small repositories").check()
    expect(pause).to_be_visible()
    expect(archive).to_be_hidden()
    page.get_by_role("checkbox", name="Select RL on-policy").check()
    expect(pause).to_be_hidden()
    page.get_by_role("checkbox", name="Select RL on small repositories").uncheck()
    expect(archive).to_be_visible()


def test_findings_are_decided_by_keyboard(operator: Page, product: Product) -> None:
    page, bar = operator, operator.locator("#bulk")
    ids = list(Finding.objects.filter(state="open").order_by("-pk").values_list("pk", flat=True)[:2])
    page.goto(f"{product.url}/findings/?state=open")
    settle(page)
    for pk in ids:
        page.get_by_role("checkbox", name=f"Select finding {pk}", exact=True).focus()
        page.keyboard.press("Space")
    expect(bar).to_contain_text("2 selected")
    expect(bar.get_by_role("button", name="Reopen")).to_be_hidden()
    bar.get_by_role("textbox", name="Note on the selected findings").focus()
    page.keyboard.type("looked at")
    bar.get_by_role("button", name="Dismiss").focus()
    page.keyboard.press("Enter")
    dialog = page.locator("dialog.confirm[open]")
    expect(dialog).to_contain_text("Dismiss every selected finding?")
    dialog.get_by_role("button", name="Dismiss").press("Enter")
    expect(page.locator("body")).to_contain_text("2 findings dismissed.")
    expect(page).to_have_url(f"{product.url}/findings/?state=open")
    assert set(Finding.objects.filter(pk__in=ids).values_list("state", "note")) == {("dismissed", "looked at")}

    page.goto(f"{product.url}/findings/?state=dismissed")
    for pk in ids:
        page.get_by_role("checkbox", name=f"Select finding {pk}", exact=True).check()
    expect(bar.get_by_role("button", name="Dismiss")).to_be_hidden()
    bar.get_by_role("button", name="Reopen").click()
    expect(page.locator("body")).to_contain_text("2 findings open again.")


def test_evaluations_are_offered_what_their_states_allow(operator: Page, product: Product) -> None:
    page, bar = operator, operator.locator("#bulk")
    one = Evaluation.objects.filter(state="finished").latest("pk")
    page.goto(f"{product.url}/evaluations/")
    page.get_by_role("checkbox", name=f"Select evaluation {one.pk}", exact=True).check()
    expect(bar.get_by_role("button", name="Stop")).to_be_hidden()
    bar.get_by_role("button", name="Grade side evaluations").click()
    expect(page.locator("body")).to_contain_text("1 evaluation queued for grading.")
    page.goto(f"{product.url}/evaluations/?cols=policy,history")
    expect(page.locator("#rows th", has_text="pass@1 by version")).to_be_visible()
