"""What people do, in a real browser against the real server: log in, start a run, watch it live, read a trajectory."""

from __future__ import annotations

import random
import re

import pytest
from playwright.sync_api import Page, WebSocket, WebSocketRoute, expect

from composer_web.core.queue import samples
from composer_web.live import counting
from composer_web.rollouts.models import Rollout
from composer_web.runs import metrics, services
from composer_web.runs.live import consumer
from composer_web.runs.models import Run
from tests.browser import seed
from tests.browser.conftest import Product
from tests.browser.screenshots import log_in, settle
from tests.browser.walking import picture
from trainer.usage import Sampler

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]
MAX_COMPARE_PX = 2000
"""Height of the comparison of two runs at 1280 x 800, all folds closed."""


def test_log_in_and_out(page: Page, product: Product) -> None:
    page.goto(f"{product.url}/runs/")
    page.fill("#id_username", "operator")
    page.fill("#id_password", "not the password")
    page.click("button:has-text('Log in')")
    expect(page.get_by_role("alert")).to_contain_text("User name or password is wrong")
    page.fill("#id_username", "operator")
    page.fill("#id_password", seed.PASSWORD)
    page.click("button:has-text('Log in')")
    expect(page).to_have_url(f"{product.url}/runs/")
    page.click("summary:has-text('operator')")
    page.click("text=Log out")
    expect(page).to_have_url(f"{product.url}/login/")


def test_create_a_run_through_the_form(operator: Page, product: Product) -> None:
    page = operator
    page.goto(f"{product.url}/runs/new/?preset=rl-smoke")
    expect(page.locator("#plan")).to_contain_text("3 steps × 2 groups")
    page.fill("[name='stage.rl.steps']", "minus one")
    error = page.locator("[data-field='stage.rl.steps'] .field__error")
    expect(error).to_have_text("A whole number is needed; found 'minus one'.")
    expect(page.locator("#plan")).to_contain_text("1 error to fix")
    page.click("button:has-text('Start run')")
    expect(page.locator("#form-errors")).to_contain_text("Run not started")
    expect(error).to_have_text("A whole number is needed; found 'minus one'.")
    page.fill("[name='stage.rl.steps']", "2")
    expect(error).to_have_text("")
    expect(page.locator("#plan")).to_contain_text("2 steps × 2 groups")
    changed = page.locator("[data-field='stage.rl.steps'] [data-reset]")
    expect(changed).to_have_text("was 3")
    changed.click()
    expect(page.locator("[name='stage.rl.steps']")).to_have_value("3")
    expect(page.locator("#changes")).to_contain_text("No changes from the preset")
    page.fill("[name='stage.rl.steps']", "2")
    expect(page.locator("#changes")).to_contain_text("3 → 2")
    page.fill("[name='name']", "From the browser")
    page.click("button:has-text('Start run')")
    expect(page.locator("h1")).to_have_text("From the browser")
    expect(page.locator("#run-head")).to_contain_text("queued")
    assert Run.objects.get(name="From the browser").steps_total == 2


def test_stage_choice_shows_only_its_fields(operator: Page, product: Product) -> None:
    page = operator
    page.goto(f"{product.url}/runs/new/")
    expect(page.locator("[name='stage.rl.group_size']")).to_be_visible()
    page.check("input[name='stage'][value='sft']")
    expect(page.locator("[name='stage.sft.episodes']")).to_be_visible()
    expect(page.locator("[name='stage.rl.group_size']")).to_be_hidden()
    expect(page.locator("#plan")).to_contain_text("Expert episodes")
    advanced = page.locator("[name='stage.sft.tamper_share']")
    expect(advanced).to_be_hidden()
    page.get_by_label("Advanced").check()
    expect(advanced).to_be_visible()
    page.get_by_label("Search settings").fill("tamper")
    expect(page.locator("[data-field]:visible")).to_have_count(2)  # it, and the choice of the stage
    page.keyboard.press("Enter")
    expect(advanced).to_be_focused()


def test_basic_fits_one_screen_and_start_is_always_in_sight(operator: Page, product: Product) -> None:
    page = operator
    for width, height in ((1440, 900), (390, 844), (2560, 1300)):
        page.set_viewport_size({"width": width, "height": height})
        page.goto(f"{product.url}/runs/new/?preset=rl-smoke")
        expect(page.locator("button[value='start']")).to_be_in_viewport()
        assert page.locator("[data-section] [data-field]:visible").count() <= 15
    page.set_viewport_size({"width": 1440, "height": 900})
    page.get_by_label("Advanced").check()
    page.locator("[data-field='stage.rl.sessions.z_score']").scroll_into_view_if_needed()
    expect(page.locator("button[value='start']")).to_be_in_viewport()


def test_enter_in_a_field_starts_nothing(operator: Page, product: Product) -> None:
    page = operator
    before = Run.objects.count()
    page.goto(f"{product.url}/runs/new/?preset=rl-smoke")
    page.fill("[name='name']", "By mistake")
    page.keyboard.press("Enter")
    page.locator("[name='stage.rl.steps']").press("Enter")
    expect(page.locator("#changes")).to_be_visible()
    assert page.url.endswith("/runs/new/?preset=rl-smoke")
    assert Run.objects.count() == before


def test_two_clicks_from_a_preset_to_a_started_run(operator: Page, product: Product) -> None:
    page = operator
    page.goto(f"{product.url}/runs/new/")
    page.click("[aria-label='Presets'] a:has-text('smoke')")
    page.click("button:has-text('Start run')")
    expect(page.locator("#run-head")).to_contain_text("queued")
    services.cancel_run(run=Run.objects.latest("pk"))


def test_chips_make_a_sweep(operator: Page, product: Product) -> None:
    page = operator
    page.goto(f"{product.url}/runs/new/?preset=rl-smoke")
    field = page.locator("[data-field='stage.rl.optimizer.learning_rate']")
    field.get_by_role("button", name="Sweep").click()
    expect(field.locator(".sweep .chip")).to_have_count(1)  # the value that the setting has
    page.keyboard.type("3e-4,7e-4")
    page.keyboard.press("Enter")
    expect(field.locator(".sweep .chip")).to_have_count(3)
    expect(page.locator("[data-preview]")).to_have_text("Preview 3 runs")
    expect(page.locator("button[value='start']")).to_be_hidden()
    field.get_by_role("button", name="Remove 3e-4").click()
    expect(page.locator("#sweep")).to_have_value(re.compile(r"^stage\.optimizer\.learning_rate: \S+, 7e-4$"))
    page.click("[data-preview]")
    expect(page.locator("#preview tbody tr")).to_have_count(2)


def test_run_page_updates_without_reload(operator: Page, product: Product) -> None:
    page, run = operator, Run.objects.get(pk=product.world.run.pk)
    page.goto(f"{product.url}/runs/{run.pk}/")
    page.evaluate("window.notReloaded = true")
    expect(page.locator("[data-live-badge]")).to_have_text("live")
    settle(page)
    reward = page.locator("[data-chart]").first
    expect(reward).to_have_attribute("data-points", "26")
    draw = random.Random(3)
    seed.curves(run, range(27, 29), draw=draw)
    services.add_event(run=run, kind="checkpoint", message="checkpoint of step 28 saved", step=28)
    expect(page.locator("#run-status")).to_contain_text("step 28 of 40")
    expect(page.locator("#run-events")).to_contain_text("checkpoint of step 28 saved")
    expect(reward).to_have_attribute("data-points", "28")
    page.click("[data-live-pause]")
    services.set_progress(run=run, step=29)
    expect(page.locator("[data-live-badge]")).to_have_text("paused, newer data waits")
    expect(page.locator("#run-status")).to_contain_text("step 28 of 40")
    page.click("[data-live-pause]")
    expect(page.locator("#run-status")).to_contain_text("step 29 of 40")
    assert page.evaluate("window.notReloaded")


def test_what_a_run_page_shows_is_pushed(operator: Page, product: Product) -> None:
    """News needs no request of the page; a part with an open menu waits; forms keep the browser's token."""
    page, run = operator, Run.objects.get(pk=product.world.run.pk)
    page.goto(f"{product.url}/runs/{run.pk}/")
    settle(page)
    page.wait_for_load_state("networkidle")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.click("#duplicate")
    metrics.record(run=run, step=31, values={"reward/mean": 0.875, "policy/entropy": 0.25})
    services.set_progress(run=run, phase="with a menu open")
    expect(page.locator("#run-status")).to_contain_text("0.875")
    expect(page.locator("[data-chart] .chart__last").first).to_have_text("0.875")
    expect(page.locator("#run-head")).not_to_contain_text("With a menu open")
    page.click("#duplicate")
    expect(page.locator("#run-head")).to_contain_text("With a menu open")
    forms = page.locator("#run-head form[method='post']")
    expect(forms).not_to_have_count(0)
    expect(page.locator("#run-head form input[name='csrfmiddlewaretoken']")).to_have_count(forms.count())
    assert not [url for url in asked if f"/runs/{run.pk}/" in url]


def test_connection_loss_is_shown_and_mended(operator: Page, product: Product) -> None:
    page, run = operator, Run.objects.get(pk=product.world.run.pk)
    connections: list[WebSocketRoute] = []
    down = False

    def relay(route: WebSocketRoute) -> None:
        if down:
            route.close(code=1012)
            return
        route.connect_to_server()
        connections.append(route)

    page.route_web_socket("**/ws/live", relay)
    page.goto(f"{product.url}/runs/{run.pk}/")
    badge = page.locator("[data-live-badge]")
    expect(badge).to_have_text("live")
    down = True
    connections[-1].close(code=1012)
    expect(badge).to_contain_text("stale since")
    metrics.record(run=run, step=30, values={"reward/mean": 0.9})
    services.set_progress(run=run, phase="after the gap")
    down = False
    expect(badge).to_have_text("live")
    expect(page.locator("#run-head")).to_contain_text("After the gap")


def test_who_has_too_many_pages_open_reads_what_to_do(
    operator: Page, product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own refusal; the page asks again once a minute only, and is live when there is room."""
    page = operator
    page.clock.install()
    badge = page.locator("[data-live-badge]")
    with monkeypatch.context() as bound:
        bound.setattr(counting, "MAX", 0)
        with page.expect_websocket():
            page.goto(f"{product.url}/runs/")
        expect(badge).to_have_text("not live: close other tabs")
        assert "Close some" in (badge.get_attribute("title") or "")
        asked: list[WebSocket] = []
        page.on("websocket", lambda socket: asked.append(socket))
        page.clock.run_for(59_000)
        assert not asked
        with page.expect_websocket() as again:
            page.clock.run_for(31_000)
        again.value.wait_for_event("close")
        expect(badge).to_have_text("not live: close other tabs")
    refused = len(asked)
    while len(asked) == refused:  # the page may hear of the close after its clock was moved
        page.clock.run_for(31_000)
    expect(badge).to_have_text("live")
    expect(badge).to_have_attribute("title", "")


def test_ticked_runs_are_compared(operator: Page, product: Product) -> None:
    page = operator
    page.goto(f"{product.url}/runs/?kind=rl")
    page.get_by_label("Select RL on small repositories").check()
    services.set_progress(run=product.world.run, phase="refreshes the table")
    page.get_by_label("Select RL on-policy").check()
    expect(page.locator("[data-bulk-count]")).to_have_text("2 selected")
    page.click("button:has-text('Compare')")
    expect(page.locator("h1")).to_have_text("Compare runs")
    settle(page)
    names = page.evaluate("document.querySelector('[data-chart] .chart__plot').data.map(t => t.name).filter(Boolean)")
    assert {name.split(",")[0] for name in names} == {"RL on small repositories", "RL on-policy"}
    picture(page, "compare", "1440", "390")
    expect(page.locator("[data-chart]:visible")).to_have_count(4)
    expect(page.locator("[data-chart]:visible .chart__legend .swatch--dot").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollHeight") <= MAX_COMPARE_PX, "outcomes, charts and settings"
    page.click("summary:has-text('more panels')")
    expect(page.locator("details[open] [data-chart][data-points]").first).to_be_visible()


def test_stopping_asks_first(operator: Page, product: Product) -> None:
    page, world = operator, product.world
    run = services.start_run(run=services.create_run(config=world.other.configuration, parent=world.other))
    page.goto(f"{product.url}/runs/{run.pk}/")
    page.click("#do-stop")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("This is for good")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert Run.objects.get(pk=run.pk).state == "queued"
    page.click("#do-stop")
    dialog.get_by_role("button", name="Stop").click()
    expect(page.locator("#run-head")).to_contain_text("cancelled")


def test_trajectory_keys_and_links(operator: Page, product: Product) -> None:
    page = operator
    rollout = Rollout.objects.filter(group__run=product.world.run, sample=1).exclude(artifact_key="").latest("pk")
    page.goto(f"{product.url}/rollouts/{rollout.pk}/")
    expect(page.locator("[data-trajectory][data-ready]")).to_be_visible()
    current = page.locator(".turn.is-current h3")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(current).to_have_text("Turn 2")
    expect(page).to_have_url(f"{product.url}/rollouts/{rollout.pk}/#t=1")
    page.keyboard.press("k")
    expect(current).to_have_text("Turn 1")
    page.keyboard.press("x")
    expect(page.locator(".turn details.call[open]")).to_have_count(0)
    page.keyboard.press("e")
    expect(page.locator(".turn details.call[open]")).to_have_count(4)
    page.keyboard.press("?")
    expect(page.locator("#key-help")).to_be_visible()
    page.keyboard.press("?")
    expect(page.locator("#key-help")).to_be_hidden()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(f"{product.url}/rollouts/{rollout.pk + 1}/")
    expect(page.locator("[data-trajectory][data-ready]")).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(page).to_have_url(f"{product.url}/rollouts/{rollout.pk}/")
    page.goto(f"{product.url}/rollouts/{rollout.pk}/#t=3")
    expect(current).to_have_text("Turn 4")
    expect(page.locator(".turn.is-current")).to_be_in_viewport()


def test_a_long_trajectory_is_searched_and_jumped_through(operator: Page, product: Product) -> None:
    page = operator
    rollout = Rollout.objects.get(group__run=product.world.run, group__prompt_index=1, sample=0)
    current = page.locator(".turn.is-current h3")
    page.goto(f"{product.url}/rollouts/{rollout.pk}/#t=130")
    expect(current).to_have_text("Turn 131")
    expect(page.locator(".turn.is-current")).to_be_in_viewport()
    expect(page.locator("[data-strip]")).to_have_attribute("aria-valuenow", "131")
    page.keyboard.press("g")
    page.keyboard.type("120")
    page.keyboard.press("Enter")
    expect(current).to_have_text("Turn 120")  # the window before is put in front
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(current).to_have_text("Turn 121")
    page.keyboard.press("/")
    page.keyboard.type("finish")
    expect(page.locator("[data-hit]").first).to_be_visible()
    page.keyboard.press("Enter")
    expect(current).to_have_text("Turn 152")
    expect(page).to_have_url(re.compile(r"q=finish#t=151"))
    page.click("a:has-text(', compare')")
    expect(page.locator("h1")).to_contain_text("scale-train")


def test_hostile_trajectory_runs_nothing(operator: Page, product: Product) -> None:
    page = operator
    page.on("dialog", lambda dialog: pytest.fail(f"a script of the trajectory ran: {dialog.message}"))
    rollout = Rollout.objects.filter(group__run=product.world.run, group__prompt_index=0).earliest("pk")
    page.goto(f"{product.url}/rollouts/{rollout.pk}/")
    page.click("text=tokens of segment 0")
    expect(page.locator(".tokens")).to_contain_text("script")
    assert page.locator("main script, main img").count() == 0


def test_theme_follows_the_system_and_the_toggle(operator: Page, product: Product) -> None:
    page = operator
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(background)
    assert dark != light
    page.click("[data-theme-toggle]")
    assert page.evaluate(background) == light
    page.goto(f"{product.url}/runs/{product.world.run.pk}/")
    assert page.evaluate(background) == light
    settle(page)
    page.click("[data-theme-toggle]")
    assert page.evaluate(background) == dark
    colour = page.evaluate("document.querySelector('[data-chart] .xtick text').style.fill")
    assert colour == "rgb(155, 166, 177)"


def test_viewer_sees_no_buttons(page: Page, product: Product) -> None:
    log_in(page, product.url, "viewer", seed.PASSWORD)
    page.goto(f"{product.url}/runs/{product.world.run.pk}/")
    expect(page.locator("h1")).to_have_text("RL on small repositories")
    assert page.locator("#run-head form:not([action*='export'])").count() == 0
    page.goto(f"{product.url}/runs/")
    assert page.locator("text=New run").count() == 0


def test_the_system_tab_draws_what_the_workers_of_a_run_use(operator: Page, product: Product) -> None:
    page, run, sampler = operator, product.world.run, Sampler()
    samples.record(worker="train@here/1", kind="train", usage=sampler.sample(), runs=[run.pk])
    page.goto(f"{product.url}/runs/{run.pk}/system/")
    cpu = page.locator("#usage-process-cpu")
    expect(cpu).to_have_attribute("data-points", re.compile("[1-9]"))
    expect(cpu.locator(".chart__key")).to_contain_text("train 1")
    expect(page.locator("#usage-host-memory .chart__last")).to_contain_text("%")
    samples.record(worker="engine@here/2", kind="engine", usage=sampler.sample(), runs=[run.pk])
    page.goto(f"{product.url}/")
    expect(page.locator("#hardware")).to_contain_text("memory")
    page.locator("#hardware a[href*='#hosts']").click()
    expect(page.locator("#system tr", has_text="engine@here/2")).to_contain_text("cores")


def test_a_page_whose_log_in_is_over_says_so_and_asks_no_more(
    operator: Page, product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until somebody has logged in beside it and it is looked at again."""
    monkeypatch.setattr(consumer, "RECHECK", 0.1)
    page, beside = operator, operator.context.new_page()
    page.clock.install()
    page.goto(f"{product.url}/runs/")
    badge = page.locator("[data-live-badge]")
    expect(badge).to_have_text("live")
    beside.goto(f"{product.url}/tokens/")
    beside.click("summary:has-text('operator')")
    beside.click("text=Log out")
    expect(badge).to_have_text("logged out")
    assert "Reload" in (badge.get_attribute("title") or "")
    asked: list[WebSocket] = []
    page.on("websocket", lambda socket: asked.append(socket))
    page.clock.run_for(5_000)  # the second attempt would come within one
    assert not asked
    looked_at = "document.dispatchEvent(new Event('visibilitychange'))"
    with page.expect_websocket() as again:
        page.evaluate(looked_at)
    again.value.wait_for_event("close")
    expect(badge).to_have_text("logged out")
    log_in(beside, product.url, "operator", seed.PASSWORD)
    page.evaluate(looked_at)
    expect(badge).to_have_text("live")
    beside.close()
