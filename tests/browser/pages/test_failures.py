"""A part of a page that cannot be fetched: it says so, and one press asks again. An ended log-in leads to the log-in page."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import BrowserContext, Page, Route, WebSocketRoute, expect

from tests.browser import seed
from tests.browser.conftest import Product
from tests.browser.screenshots import log_in

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]
FACETS = re.compile(r"/runs/facets/")


@pytest.fixture
def tab(context: BrowserContext, product: Product, db: None) -> Page:
    """Without the fixture's strictness: a failed request is an error in the console."""
    page = context.new_page()
    log_in(page, product.url, "operator", seed.PASSWORD)
    return page


def broken(route: Route) -> None:
    route.fulfill(status=500, body="broken")


def unanswered(route: Route) -> None:
    route.abort("connectionrefused")


@pytest.mark.parametrize(("fault", "reason"), [(broken, "answered 500"), (unanswered, "did not answer")])
def test_a_part_that_failed_can_be_asked_for_again(tab: Page, product: Product, fault: object, reason: str) -> None:
    tab.route(FACETS, fault)  # type: ignore[arg-type]
    tab.goto(f"{product.url}/runs/")
    tab.locator(".toolbar__filters > summary").click()  # which fetches the facets
    told = tab.locator(".toast--bad[role='alert']")
    expect(told).to_contain_text(f"A part of this page could not be loaded: the server {reason}.")
    expect(tab.locator("#facets .facet")).to_have_count(0)
    told.get_by_role("button", name="Try again").click()
    expect(told).to_contain_text(reason)  # it failed once more
    tab.unroute(FACETS)
    told.get_by_role("button", name="Try again").click()
    expect(tab.locator("#facets .facet").first).to_be_attached()  # the press beside them closed the filters
    expect(told).to_have_count(0)


def test_an_ended_log_in_leads_to_the_log_in_page_and_back(tab: Page, product: Product) -> None:
    tab.route_web_socket(re.compile("/ws/"), lambda socket: None)  # no refresh but the one asked for below
    tab.goto(f"{product.url}/evaluations/")
    tab.locator("td.strong a").first.wait_for()
    tab.context.clear_cookies()
    tab.evaluate(
        """() => document.querySelector("[hx-trigger~='oc:refresh']").dispatchEvent(new CustomEvent("oc:refresh"))"""
    )
    tab.wait_for_url(re.compile(r"/login/\?next=/evaluations/"))
    expect(tab.locator("#id_username")).to_be_visible()


def test_what_changes_while_a_part_is_fetched_is_fetched_after_it(tab: Page, product: Product) -> None:
    sockets: list[WebSocketRoute] = []
    held: list[Route] = []
    tab.clock.install()

    def greet(socket: WebSocketRoute) -> None:
        sockets.append(socket)
        socket.send(json.dumps({"hello": {}}))

    tab.route_web_socket(re.compile("/ws/"), greet)
    tab.goto(f"{product.url}/evaluations/")
    expect(tab.locator("[data-live-badge]")).to_have_text("live")
    # Only now: the page before this one asked for its bell when its own connection was accepted.
    tab.route(re.compile(r"\?bell"), lambda route: held.append(route))
    for seq in (1, 2):
        with tab.expect_request(re.compile(r"\?bell")):
            sockets[0].send(json.dumps({"topic": "alerts", "seq": seq}))
            if seq == 2:
                tab.clock.run_for(1000)  # over the time in which hints are gathered
                assert len(held) == 1
                held[0].continue_()
