"""The help site in a browser, under the product's Content-Security-Policy: it renders, searches and changes its theme."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from composer_web.accounts.services import create_user
from composer_web.help import views
from scripts.docs import build
from tests.browser import seed
from tests.browser.conftest import serve
from tests.browser.screenshots import log_in

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def address(
    django_db_setup: None,
    django_db_blocker: pytest.FixtureRequest,
    chrome: Browser,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """A server over a database with one person in it."""
    site = tmp_path_factory.mktemp("help") / "site"
    build.build(site)
    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patch:  # type: ignore[attr-defined]
        patch.setattr(views, "SITE", Path(site))
        create_user(username="viewer", password=seed.PASSWORD, role="viewer")
        with serve() as url:
            yield url


@pytest.fixture
def db(address: str, django_db_blocker: pytest.FixtureRequest) -> Iterator[None]:
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        yield


def test_help_is_a_click_away_and_works_offline(address: str, page: Page, context: BrowserContext) -> None:
    """`page` fails its test on any error of the console, such as a script that the policy refuses."""
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    log_in(page, address, "viewer", seed.PASSWORD)
    page.get_by_role("link", name="Help", exact=True).click()
    drawer = page.get_by_role("dialog", name="Help")
    expect(drawer.get_by_role("heading", level=1)).to_contain_text("Quickstart")
    page.goto(f"{address}/help/")
    expect(page.get_by_role("heading", level=1)).to_contain_text("OpenComposer")
    page.get_by_role("link", name="Quickstart").first.click()
    expect(page).to_have_url(re.compile(r"/help/start/quickstart/$"))
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


def test_search_finds_pages(address: str, page: Page) -> None:
    log_in(page, address, "viewer", seed.PASSWORD)
    page.goto(f"{address}/help/")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("textbox").or_(page.get_by_role("searchbox")).or_(page.get_by_role("combobox")).last.fill(
        "staleness"
    )
    expect(page.locator("a", has=page.locator("mark")).first).to_be_visible()


def test_the_theme_follows_the_machine_and_can_be_changed(address: str, page: Page) -> None:
    log_in(page, address, "viewer", seed.PASSWORD)
    body = page.locator("body")
    page.goto(f"{address}/help/glossary/")
    expect(body).to_have_attribute("data-md-color-scheme", "default")
    page.emulate_media(color_scheme="dark")
    expect(body).to_have_attribute("data-md-color-scheme", "slate")
    page.locator("label[title='Switch to the light theme']").click()
    expect(body).to_have_attribute("data-md-color-scheme", "default")
    page.reload()
    expect(body).to_have_attribute("data-md-color-scheme", "default")
