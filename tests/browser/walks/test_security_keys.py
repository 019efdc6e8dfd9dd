"""A security key in a real browser: Chromium's virtual authenticator over the DevTools protocol stands for the key."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser import seed
from tests.browser.conftest import Product
from tests.browser.screenshots import log_in

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(300)]
KEY = {
    "protocol": "ctap2",
    "transport": "usb",
    "hasResidentKey": False,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


def virtual_key(page: Page) -> None:
    """Plug one in: it answers at once, as if touched."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    devtools.send("WebAuthn.addVirtualAuthenticator", {"options": KEY})


def confirm_password(page: Page) -> None:
    page.fill("#id_password", seed.PASSWORD)
    page.click("button:has-text('Confirm')")


@pytest.mark.slow
def test_register_log_in_and_remove(page: Page, product: Product) -> None:
    url = product.url.replace("127.0.0.1", "localhost")  # no browser has keys at a number
    virtual_key(page)
    log_in(page, url, "reviewer", seed.PASSWORD)
    page.goto(f"{url}/2fa/")
    page.click("a:has-text('Add a key')")
    confirm_password(page)
    page.get_by_label("Name").fill("Key ring")
    page.click("button:has-text('Add the key')")
    expect(page.locator("h1")).to_have_text("Recovery codes")
    page.goto(f"{url}/2fa/")
    expect(page.locator("tr:has-text('Key ring')")).to_contain_text("never")
    page.click("a:has-text('Add a key')")
    page.click("button:has-text('Add the key')")
    expect(page.locator("[data-key-problem]")).to_contain_text("on your list already")

    page.locator(".menu:has-text('reviewer') > summary").click()
    page.click("button:has-text('Log out')")
    page.fill("#id_username", "reviewer")
    page.fill("#id_password", seed.PASSWORD)
    page.click("button:has-text('Log in')")
    page.click("button:has-text('Use a security key')")
    page.wait_for_url(f"{url}/")

    page.goto(f"{url}/2fa/")
    expect(page.locator("tr:has-text('Key ring')")).not_to_contain_text("never")
    page.click("tr:has-text('Key ring') a:has-text('Remove')")
    page.click("a:has-text('Use a security key')")  # instead of the password
    page.click("button:has-text('Use a security key')")
    page.click("button:has-text('Remove')")
    expect(page.locator("main")).to_contain_text("No security key is registered")


def test_an_address_by_number_says_what_to_do(page: Page, product: Product) -> None:
    virtual_key(page)
    log_in(page, product.url, "viewer", seed.PASSWORD)
    page.goto(f"{product.url}/2fa/webauthn/add/")
    confirm_password(page)
    page.click("button:has-text('Add the key')")
    expect(page.locator("[data-key-problem]")).to_contain_text("open the product by a host name")


def test_nothing_is_sent_before_the_page_can_ask_for_a_key(page: Page, product: Product) -> None:
    log_in(page, product.url, "viewer", seed.PASSWORD)
    held: list[Route] = []
    page.route("**/js/keys*.js", lambda route: held.append(route))
    page.goto(f"{product.url}/2fa/webauthn/add/")
    with page.expect_request("**/js/keys*.js"):
        confirm_password(page)
    button = page.locator("button:has-text('Add the key')")
    expect(button).to_be_disabled()
    held.pop().continue_()
    expect(button).to_be_enabled()
