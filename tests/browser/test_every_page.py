"""Every page in both themes, wide, narrow and on a 4K screen: no console error, nothing that the content policy refused, and what
`audit.js` asks of contrast, names, headings and width."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from tests.browser import corners, seed
from tests.browser.conftest import PATIENCE_MS, Product
from tests.browser.places import places
from tests.browser.screenshots import log_in, settle

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

AUDIT = (Path(__file__).parent / "audit.js").read_text()
SIZES = {"wide": (1280, 800), "narrow": (360, 800)}
LARGEST = (3840, 2160)
FILLS = """() => {
  const page = document.querySelector(".page:not(.page--narrow)");
  const found = page && page.offsetWidth < 0.75 * innerWidth ? [`the page fills ${page.offsetWidth} of ${innerWidth}`] : [];
  return document.documentElement.scrollWidth > innerWidth ? [...found, "the page scrolls sideways"] : found;
}"""
REFUSALS = (
    "addEventListener('securitypolicyviolation', e => console.error(`refused: ${e.violatedDirective} ${e.sourceFile}`))"
)


def watch(context: BrowserContext) -> tuple[Page, list[str]]:
    """A tab and the list into which it writes each error, warning and refusal."""
    context.add_init_script(REFUSALS)
    page, problems = context.new_page(), []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            problems.append(message.text)

    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", note)
    return page, problems


@pytest.fixture(scope="module")
def product(product: Product, django_db_blocker: pytest.FixtureRequest) -> Product:
    """With one of each thing that has a page."""
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        corners.corners(product.world)
    return product


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page(chrome: Browser, product: Product, db: None, theme: str) -> None:
    context = chrome.new_context(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE_MS)
    page, problems = watch(context)
    log_in(page, product.url, "operator", seed.PASSWORD)
    wrong: dict[str, list[str]] = {}
    found_places = places(page, product.url)
    assert found_places.keys() >= {"sweep", "draft", "imported", "task-history", "session", "endpoint", "finding"}
    for name, path in {**found_places, "nothing": "/nothing/"}.items():
        problems.clear()
        page.goto(product.url + path)
        for size, (width, height) in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            settle(page)
            found = page.evaluate(AUDIT)
            found += [text for text in problems if name != "nothing" or "404" not in text]
            problems.clear()
            if found:
                wrong[f"{name}, {size}"] = found
        page.set_viewport_size({"width": LARGEST[0], "height": LARGEST[1]})
        if found := page.evaluate(FILLS):
            wrong[f"{name}, largest"] = found
    context.close()
    assert not wrong, "\n".join(f"{place}:\n  " + "\n  ".join(found) for place, found in wrong.items())


def test_api_documentation_can_be_tried(chrome: Browser, product: Product, db: None) -> None:
    context = chrome.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page, problems = watch(context)
    log_in(page, product.url, "operator", seed.PASSWORD)
    # The first to ask for the description has it made, which takes a busy machine long: that is not what is tried here.
    assert context.request.get(f"{product.url}/api/v1/openapi.json", timeout=4 * PATIENCE_MS).ok
    page.goto(f"{product.url}/api/v1/docs")
    page.locator(".opblock-get", has_text="List runs").locator("button.opblock-summary-control").click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute", exact=True).click()
    expect(page.locator(".live-responses-table tbody .response-col_status").first).to_contain_text("200")
    expect(page.locator(".live-responses-table")).to_contain_text("RL on small repositories")
    context.close()
    assert not problems, problems
