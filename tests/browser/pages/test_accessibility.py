"""How a page is judged by axe-core (`test_every_page.py` does it on each), what counts as moving, and that a keyboard is
enough to find and to start runs."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import corners, seed
from tests.browser.conftest import PATIENCE_MS, Product, strict_tab
from tests.browser.places import places
from tests.browser.screenshots import log_in, settle

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(600)]

AXE_SOURCE = (files("axe_playwright_python") / "axe.min.js").read_text()
AXE, KEYBOARD, MOVES = ((Path(__file__).parent / name).read_text() for name in ("axe.js", "keyboard.js", "moves.js"))
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OF_COLOUR = ["color-contrast", "link-in-text-block"]
"""Rules that a theme can break."""
UNFOLD = "() => document.querySelectorAll('details:not(.menu, [open])').forEach(fold => (fold.open = true))"
UNFOLDED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
MAX_STOPS = 400
LOW = {"width": 1280, "height": 560}
"""A window in which a page's bars could cover what has the focus."""


@pytest.fixture(scope="module")
def product(product: Product, django_db_blocker: pytest.FixtureRequest) -> Product:
    """With one of each thing that has a page."""
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        corners.corners(product.world)
    return product


def judge(page: Page, *, colours: bool = True) -> list[str]:
    """What axe finds here in the light theme, what of that depends on colour in the dark one, and what moves. Colours are
    most of what axe takes long for."""
    page.emulate_media(color_scheme="light")
    page.evaluate(AXE_SOURCE)
    page.evaluate(UNFOLD)
    settle(page)
    found: list[str] = page.evaluate(AXE, [RULES, [] if colours else OF_COLOUR])
    if not colours:
        return found + page.evaluate(MOVES)
    page.emulate_media(color_scheme="dark")
    settle(page)
    found += [f"dark: {one}" for one in page.evaluate(AXE, [OF_COLOUR, []])]
    return found + page.evaluate(MOVES)


def test_what_moves_stands_still_on_request(operator: Page, product: Product) -> None:
    page = operator
    page.goto(f"{product.url}/system/")
    page.evaluate("""() => document.querySelector("main").insertAdjacentHTML("beforeend",
        '<span class="badge badge--busy">running</span><progress aria-label="Waits"></progress>')""")
    assert page.evaluate(MOVES) == []
    page.emulate_media(reduced_motion="no-preference")
    assert len(page.evaluate(MOVES)) >= 2  # else what stands here would prove nothing
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(MOVES) == []


def walk(page: Page) -> list[str]:
    """What is wrong on the way through a page by Tab. Folds are opened and all rows ticked, so that what lies behind them is
    reached too."""
    page.evaluate(KEYBOARD)
    wrong: list[str] = []
    for _ in range(MAX_STOPS):
        page.keyboard.press("Tab")
        place = page.evaluate("() => keyboard.look()")
        if place is None:  # the last one was left
            break
        wrong += place["wrong"]
        if place["folded"]:
            page.keyboard.press("Enter")
            page.evaluate(UNFOLDED)  # what is fetched then, is asked for by now
            settle(page)
        elif place["ticksAll"]:
            page.keyboard.press("Space")
    return wrong + page.evaluate("() => keyboard.missed()")


@pytest.mark.parametrize("path", ["/runs/", "/runs/new/?preset=rl-smoke"])
def test_tab_leads_to_every_control_and_shows_where_it_is(
    chrome: Browser, product: Product, db: None, path: str
) -> None:
    context = chrome.new_context(viewport=LOW, reduced_motion="reduce")  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE_MS)
    with strict_tab(context) as page:
        log_in(page, product.url, "operator", seed.PASSWORD)
        page.goto(product.url + path)
        if path == "/runs/":
            expect(page.locator("[data-live-badge]")).to_have_attribute("data-state", "live")
            # Opened without a press: Tab goes on from what was pressed, and is to begin at the top.
            filters = page.locator(".toolbar__filters")
            filters.evaluate("fold => { fold.open = true }")
            expect(page.locator("#facets .facet").first).to_be_visible()
            filters.evaluate("fold => { fold.open = false }")
        settle(page)
        wrong = walk(page)
    context.close()
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tab_leads_to_every_control_of_every_page(chrome: Browser, product: Product, db: None) -> None:
    context = chrome.new_context(viewport=LOW, reduced_motion="reduce")  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    log_in(page, product.url, "admin", seed.PASSWORD)
    wrong: dict[str, list[str]] = {}
    for name, path in places(page, product.url).items():
        if name == "api":  # Swagger's own page
            continue
        page.goto(product.url + path)
        settle(page)
        if found := walk(page):
            wrong[name] = found
    context.close()
    assert not wrong, "\n".join(f"{name}:\n  " + "\n  ".join(found[:12]) for name, found in wrong.items())


def test_the_focus_stays_where_it_is_while_a_live_part_is_fetched(operator: Page, product: Product) -> None:
    page, name = operator, product.world.run.name
    page.goto(f"{product.url}/runs/")
    link = page.locator("#recent-runs").get_by_role("link", name=name)
    link.focus()
    link.evaluate("""(one) => new Promise((done) => {
      document.addEventListener("htmx:afterSettle", () => done(), { once: true });
      one.closest("nav").dispatchEvent(new CustomEvent("oc:refresh"));
    })""")
    expect(link).to_be_focused()


def test_arrows_choose_the_stage_and_escape_closes_a_menu(operator: Page, product: Product) -> None:
    page = operator
    page.goto(f"{product.url}/runs/new/?preset=rl-smoke")
    page.locator("[name='stage']:checked").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("[name='stage']:checked").get_attribute("value") != "rl"
    menu = page.locator("details.menu", has_text="Log out")
    menu.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(menu).to_have_attribute("open", "")
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    expect(menu).not_to_have_attribute("open", "")
    expect(menu.locator("summary")).to_be_focused()
