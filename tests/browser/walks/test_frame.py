"""The frame of every page: palette, sidebar, run tabs, help drawer, times and toasts, by mouse, keyboard and on a phone."""

from __future__ import annotations

import random
import re
import time
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from composer_web.help import views as help_views
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.runs import services
from composer_web.runs.models import Run
from tests.browser.conftest import Product
from tests.browser.episodes import finish_group
from tests.browser.screenshots import settle

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]
PHONE = {"width": 390, "height": 844}


def hears_keys(page: Page) -> None:
    """The address changes before the new page's modules have run."""
    expect(page.locator("html")).to_have_attribute("data-ready", "")


def test_the_palette_finds_and_opens_by_keyboard(operator: Page, product: Product) -> None:
    page, run = operator, product.world.run
    page.goto(f"{product.url}/tasks/")
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name=re.compile("^Search runs"))
    expect(box).to_be_focused()
    options = page.locator("#palette [role='option']")
    expect(options.first).to_have_attribute("aria-selected", "true")
    box.fill("small repos")
    expect(options.first).to_contain_text("RL on small repositories")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{product.url}/runs/{run.pk}/")
    hears_keys(page)
    page.keyboard.press("Control+k")
    box.fill("alert rules")
    expect(options).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{product.url}/alerts/rules/")
    hears_keys(page)
    page.keyboard.press("Control+k")
    box.fill("nothing is called like this")
    expect(page.locator("#palette")).to_contain_text("Nothing matches")
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()


def test_a_palette_asked_for_before_the_page_has_loaded_opens(operator: Page, product: Product) -> None:
    page, held = operator, list[Route]()
    page.route("**/js/main*.js", lambda route: held.append(route))
    page.goto(f"{product.url}/tasks/", wait_until="commit")
    expect(page.locator("main h1")).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.locator("html")).to_have_attribute("data-palette", "asked")
    expect(page.locator("#palette")).to_be_hidden()
    held[0].continue_()
    expect(page.get_by_role("combobox", name=re.compile("^Search runs"))).to_be_focused()


def test_the_palette_acts_on_the_run_of_the_page_and_asks_first(operator: Page, product: Product) -> None:
    page, world = operator, product.world
    run = services.start_run(run=services.create_run(config=world.other.configuration, parent=world.other))
    page.goto(f"{product.url}/runs/{run.pk}/logs/")
    page.locator(".finder").click()
    page.get_by_role("combobox", name=re.compile("^Search runs")).fill("stop")
    expect(page.locator("#palette [role='option']").first).to_contain_text("Stop")
    page.locator("#palette [role='option']").first.click()
    dialog = page.locator("dialog.confirm[open]")
    expect(dialog).to_contain_text("This is for good")
    dialog.get_by_role("button", name=re.compile("^Stop")).click()
    expect(page.locator("#run-head")).to_contain_text("cancelled")
    expect(page.locator(".toasts .toast")).to_contain_text("Stopped")
    assert Run.objects.get(pk=run.pk).state == "cancelled"


def test_tabs_keep_the_run_through_every_click(operator: Page, product: Product) -> None:
    page, run = operator, product.world.run
    page.goto(f"{product.url}/runs/{run.pk}/")
    tabs = page.get_by_role("navigation", name="Run", exact=True)
    for name in ("Charts", "Rollouts", "Evals", "Config", "Logs", "System"):
        tabs.get_by_role("link", name=name).click()
        expect(tabs.locator("[aria-current]")).to_have_text(re.compile(name))
        expect(page.locator("#run-head")).to_contain_text(run.name)
    tabs.get_by_role("link", name="Rollouts").click()
    page.locator("td.strong a").first.click()
    expect(page.locator("#run-head")).to_contain_text(run.name)
    expect(tabs.locator("[aria-current]")).to_have_text(re.compile("Rollouts"))
    page.click("#switch-run")
    other = f"/runs/{product.world.other.pk}/rollouts/"
    page.locator(f".runhead__switch a[href='{other}']", has_text="RL on-policy").click()
    expect(page).to_have_url(product.url + other)


def test_the_sidebar_folds_and_stays_folded(operator: Page, product: Product) -> None:
    page, sidebar = operator, operator.locator("#sidebar")
    page.goto(f"{product.url}/runs/{product.world.run.pk}/")
    expect(sidebar.locator(f"[data-run='{product.world.run.pk}']")).to_have_attribute("aria-current", "true")
    wide = sidebar.bounding_box()
    page.keyboard.press("Control+b")
    expect(page.locator("html")).to_have_attribute("data-sidebar", "collapsed")
    page.reload()
    narrow = sidebar.bounding_box()
    assert wide is not None and narrow is not None and narrow["width"] < 80 < wide["width"]
    expect(page.get_by_role("link", name="Policies")).to_be_visible()
    page.get_by_role("button", name="Expand the sidebar").click()
    expect(page.locator("html")).not_to_have_attribute("data-sidebar", "collapsed")


def test_on_a_phone_the_sidebar_is_a_drawer(operator: Page, product: Product) -> None:
    page, sidebar = operator, operator.locator("#sidebar")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    page.goto(f"{product.url}/tasks/")
    expect(sidebar).to_be_hidden()
    page.get_by_role("button", name="Open the menu").click()
    expect(sidebar).to_be_visible()
    page.keyboard.press("Escape")
    expect(sidebar).to_be_hidden()
    page.get_by_role("button", name="Open the menu").click()
    sidebar.get_by_role("link", name="Evaluations").click()
    expect(page).to_have_url(f"{product.url}/evaluations/")


def test_help_of_the_screen_opens_beside_it(
    operator: Page, product: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (
        ("concepts/rollout", '<a href="../group/#size">Group</a>'),
        ("concepts/group", '<h2 id="size">Size</h2>'),
    ):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "index.html").write_text(f"<html><body><article><h1>{name}</h1>{text}</article></body></html>")
    (tmp_path / "index.html").write_text("<html></html>")
    monkeypatch.setattr(help_views, "SITE", tmp_path)
    page, drawer = operator, operator.locator("#help")
    page.goto(f"{product.url}/rollouts/")
    page.keyboard.press("F1")
    expect(drawer.locator("h1")).to_have_text("concepts/rollout")
    drawer.get_by_role("link", name="Group").click()
    expect(drawer.locator("#help-size")).to_be_visible()
    expect(drawer.get_by_role("link", name="Open in a tab")).to_have_attribute(
        "href", re.compile("/help/concepts/group/")
    )
    assert page.url == f"{product.url}/rollouts/"
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()


def test_times_are_relative_or_absolute_local_or_utc(operator: Page, product: Product) -> None:
    page = operator
    page.goto(f"{product.url}/runs/{product.world.other.pk}/")
    first = page.locator("#run-lineage time, #run-events time").first
    expect(first).to_have_text(re.compile("ago|just now"))
    page.get_by_label("Times", exact=True).click()
    page.get_by_role("radio", name=re.compile("^Absolute")).check()
    page.get_by_role("radio", name="UTC", exact=True).check()
    expect(first).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$"))
    expect(first).to_have_attribute("title", re.compile("ago|just now"))
    page.reload()
    expect(first).to_have_text(re.compile(r"UTC$"))


def test_how_long_a_run_takes_is_counted_on_each_second(operator: Page, product: Product) -> None:
    page, run = operator, product.world.run
    started = Run.objects.get(pk=run.pk).started_at
    assert started is not None
    page.clock.install(time=started + timedelta(minutes=4))
    for path in (f"/runs/{run.pk}/", "/"):
        page.goto(product.url + path)
        hears_keys(page)
        duration = page.locator("main time[data-since]").first
        page.clock.pause_at(started + timedelta(minutes=5, seconds=3))
        for more in ("5 min 03 s", "5 min 04 s", "5 min 05 s"):
            expect(duration).to_have_text(more)
            page.clock.run_for(1000)
        page.clock.run_for(60_000)
        expect(duration).to_have_text("6 min 06 s")
        page.clock.resume()
        page.clock.set_system_time(started + timedelta(minutes=4))


SEEN = """(text) => {
  const says = () => document.querySelector("#run-head")?.textContent.includes(text);
  window.seen = new Promise((done) => {
    const now = () => done((performance.timeOrigin + performance.now()) / 1000);
    new MutationObserver(() => says() && now()).observe(document.body, { subtree: true, childList: true });
    setTimeout(now, 20_000);
  });
}"""
"""When the head of the run's page says so, in seconds of the machine's clock; not later than after 20 s."""
FETCH = """async () => {
  const from = performance.now();
  await (await fetch(document.querySelector("#run-head").getAttribute("hx-get") ?? location.href)).text();
  return (performance.now() - from) / 1000;
}"""


def test_a_change_of_state_is_pushed_to_an_open_page(operator: Page, product: Product) -> None:
    """Within a second, and what one fetch of the part takes on this machine: nothing is polled for."""
    page, other = operator, product.world.other
    run = services.start_run(run=services.create_run(config=other.configuration, parent=other))
    pushed, asked = list[str](), list[str]()
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: pushed.append(str(frame))))
    page.goto(f"{product.url}/runs/{run.pk}/")
    expect(page.locator("[data-live-badge]")).to_have_text("live")
    settle(page)
    expect(page.locator("#run-head")).to_contain_text("queued")
    fetch = max(page.evaluate(FETCH) for _ in range(3))
    page.evaluate(f"text => void ({SEEN})(text)", "running")
    page.on("request", lambda request: asked.append(request.url))
    before = len(pushed)
    services.mark_running(run=run, owner="trainer@seed/0")
    committed = time.time()
    took = page.evaluate("window.seen") - committed
    assert len(pushed) > before and f"run:{run.pk}" in "".join(pushed[before:])
    assert took <= 1 + 4 * fetch, (
        f"{took:.2f} s from the commit to the page; a fetch takes {fetch:.2f} s; asked: {asked}"
    )


def test_what_was_copied_is_said_and_figures_explain_themselves(operator: Page, product: Product) -> None:
    page, run = operator, product.world.run
    page.goto(f"{product.url}/runs/{run.pk}/config/")
    page.context.grant_permissions(["clipboard-write"])
    page.get_by_role("button", name="Copy JSON").click()
    expect(page.locator(".toasts .toast")).to_have_text("Copied")
    page.goto(f"{product.url}/runs/{run.pk}/")
    settle(page)
    tip = page.locator("#help-entropy")
    expect(tip).to_be_hidden()
    page.get_by_role("button", name="Entropy").focus()
    page.keyboard.press("Enter")
    expect(tip).to_contain_text("policy/entropy")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_commands_are_copied_as_the_form_and_the_menu_stand(operator: Page, product: Product) -> None:
    page = operator
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=product.url)
    page.goto(f"{product.url}/runs/new/")
    page.locator("#more-actions").click()
    page.get_by_role("button", name="Copy as curl").click()
    expect(page.locator(".toasts .toast")).to_have_text("Command copied")
    assert "/api/v1/runs?start=true" in page.evaluate("navigator.clipboard.readText()")
    page.goto(f"{product.url}/rollouts/")
    page.locator("#export").click()
    page.get_by_label("that these filters leave").select_option("parquet")
    page.get_by_role("button", name="Copy as opencomposer").click()
    expect(page.locator(".toasts .toast")).to_have_text("Command copied")
    assert "exports create rollouts --format parquet" in page.evaluate("navigator.clipboard.readText()")


def test_home_leads_to_the_cause_and_its_failures_stream_in(operator: Page, product: Product) -> None:
    page, run = operator, product.world.run
    page.goto(f"{product.url}/")
    expect(page.locator(".headline__value").first).to_contain_text("→")
    expect(page.locator("#failures li")).not_to_have_count(0)
    expect(page.locator("[data-live-badge]")).to_have_text("live")
    page.evaluate("window.notReloaded = true")
    rollouts.pump(run_id=run.pk)
    group = Group.objects.filter(run=run, state="dispatched").latest("prompt_index")
    finish_group(group, draw=random.Random(3), skill=0.0)
    newest = group.rollouts.order_by("-finished_at", "-pk")[0]
    assert newest.verdict == "failed"
    expect(page.locator(f"#failures li:first-child a[href='/rollouts/{newest.pk}/']")).to_be_visible()
    assert page.evaluate("window.notReloaded")
    page.locator(".attention__row", has_text="Untriaged findings").click()
    expect(page).to_have_url(re.compile(rf"/findings/\?run={run.pk}"))
    tabs = page.get_by_role("navigation", name="Run", exact=True)
    expect(tabs.locator("[aria-current]")).to_have_text(re.compile("Rollouts"))
    page.locator("#rows td a[href^='/findings/']").first.click()
    expect(page).to_have_url(re.compile(r"/findings/\d+/"))
    expect(tabs).to_be_visible()
    page.locator("#run-head").get_by_role("link", name="Compare").click()
    expect(page).to_have_url(re.compile(rf"/runs/compare/\?run={run.pk}"))
    tabs.get_by_role("link", name="Overview").click()
    expect(page.locator("#insights")).to_contain_text("Untriaged findings")
