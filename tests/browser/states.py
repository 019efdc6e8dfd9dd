"""Pages that have no address of their own: what a person sees after doing something, who may not, or when something fails."""

from __future__ import annotations

import base64
import functools
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass

from playwright.sync_api import Page

from tests.browser import working
from tests.browser.faults import rendered
from tests.browser.places import newest_runs

CAREFUL, SECRET = "careful", "JBSWY3DPEHPK3PXP"
"""A person of the seeded world with an authenticator app, and its secret."""

NOBODY = "nobody"
"""Who is not logged in."""


@dataclass(frozen=True)
class State:
    """`arrange` is given a tab and the product's address, and leaves the page as it is to be seen. `who` is a name of the
    seeded world; empty: whoever looks at all the other pages."""

    arrange: Callable[[Page, str], None]
    who: str = ""


def at(path: str) -> Callable[[Page, str], None]:
    return lambda page, url: page.goto(url + path) and None


def opened(path: str, summary: str) -> Callable[[Page, str], None]:
    """With a menu or a fold open."""

    def arrange(page: Page, url: str) -> None:
        page.goto(url + path)
        page.locator(f"details:has(> {summary}):not([open])").first.wait_for()
        page.locator(summary).first.click()

    return arrange


def open_row(listed: str, summary: str) -> Callable[[Page, str], None]:
    """The first page of a list, with a menu open."""

    def arrange(page: Page, url: str) -> None:
        page.goto(url + listed)
        page.locator("td.strong a").first.click()
        page.locator(summary).first.click()

    return arrange


def ticked(page: Page, url: str) -> None:
    page.goto(f"{url}/runs/")
    for box in page.locator("[data-tick]").all()[:2]:
        box.check()
    page.locator("#bulk:not([hidden])").wait_for()


def compare_menu(page: Page, url: str) -> None:
    page.goto(f"{url}/runs/compare/?" + "&".join(f"run={pk}" for pk in newest_runs(page, url)))
    page.locator("#add").click()


def plan(page: Page, url: str) -> None:
    """The launch form with something changed: what will run, and what differs from the preset."""
    page.goto(f"{url}/runs/new/?preset=rl-smoke")
    page.fill("[name='name']", "Longer smoke test")
    steps = page.locator("[name='rl.steps']:visible, [name$='steps']:visible").first
    steps.fill("20")
    steps.blur()
    page.locator("#changes a").first.wait_for()
    page.evaluate("() => scrollTo(0, 0)")


def refused_form(page: Page, url: str) -> None:
    page.goto(f"{url}/runs/new/?preset=rl-smoke")
    page.fill("[name='name']", "")
    page.locator("button[value='start']").click()
    page.locator("#form-errors").wait_for()


def sweep_preview(page: Page, url: str) -> None:
    page.goto(f"{url}/runs/new/?preset=rl-smoke")
    page.fill("[name='name']", "Rates")
    page.locator("#sweep-fold summary").click()
    page.fill("#sweep", "stage.optimizer.learning_rate: 3e-4, 7e-4\nseed: 1, 2, 3")
    page.locator("[data-preview]").click()
    page.locator("#preview").wait_for()


def two_rollouts(page: Page, url: str) -> None:
    """A prompt's rollouts with two of them side by side."""
    page.goto(f"{url}/rollouts/?verdict=passed")
    page.locator("td.strong a").first.click()
    page.locator("a:has-text('compare')").click()
    for box in page.locator("[name='pair']").all()[:2]:
        box.check()
    page.get_by_role("button", name="Compare").click()
    page.locator("#pair").wait_for()


def invite(page: Page, url: str) -> None:
    name = "another-guest"
    page.goto(f"{url}/people/")
    old = page.locator("tr", has_text=name).get_by_role("button", name="Withdraw")
    if old.count():
        old.first.click()
        page.locator(".toasts .toast").first.wait_for()
    page.fill("#invite [name='username']", name)
    page.locator("#invite button").click()
    page.locator("#invited").wait_for()


def join(page: Page, url: str) -> None:
    """The page behind an invitation."""
    invite(page, url)
    link = page.locator("#invited input").input_value()
    page.goto(link.replace(link.split("/join/")[0], url))


def second_factor(page: Page, url: str, *, password: str) -> None:
    page.goto(f"{url}/login/")
    page.fill("#id_username", CAREFUL)
    page.fill("#id_password", password)
    page.click("button:has-text('Log in')")
    page.wait_for_url("**/2fa/authenticate/**")


def code_now() -> str:
    """What the app of `CAREFUL` shows (RFC 6238: SHA-1, 30 s, six digits)."""
    digest = hmac.digest(base64.b32decode(SECRET), int(time.time() // 30).to_bytes(8, "big"), "sha1")
    begin = digest[-1] & 15
    return f"{(int.from_bytes(digest[begin : begin + 4], 'big') & 0x7FFFFFFF) % 10**6:06d}"


def log_in_carefully(page: Page, url: str, *, password: str) -> None:
    second_factor(page, url, password=password)
    page.fill("#id_code", code_now())
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{url}/")


def refused_login(page: Page, url: str) -> None:
    page.goto(f"{url}/login/")
    page.fill("#id_username", "somebody")
    page.fill("#id_password", "wrong")
    page.click("button:has-text('Log in')")
    page.locator(".notice--bad").wait_for()


def confirmed(path: str, *, password: str) -> Callable[[Page, str], None]:
    """A page that asks for the password again first."""

    def arrange(page: Page, url: str) -> None:
        page.goto(url + path)
        if "/reauthenticate/" in page.url:
            page.fill("#id_password", password)
            page.locator("main form button").first.click()
            page.wait_for_url(url + path)

    return arrange


def new_token(page: Page, url: str) -> None:
    page.goto(f"{url}/tokens/")
    page.fill("[name='name']", "nightly report")
    page.locator("form:has([name='name']) button").last.click()
    page.locator("#new-token").wait_for()


def asks_first(page: Page, url: str) -> None:
    page.goto(f"{url}/runs/?state=running")
    page.locator("td.strong a").first.click()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.locator("dialog[open]").wait_for()


def search_hits(page: Page, url: str) -> None:
    page.goto(f"{url}/rollouts/?verdict=passed")
    page.locator("td.strong a").first.click()
    page.fill("#search", "edit")
    page.locator("#hits a").first.wait_for()


def trajectory(page: Page, url: str) -> None:
    """A failed rollout's page with its keys at work."""
    page.goto(f"{url}/rollouts/?verdict=failed")
    page.locator("td.strong a").first.click()
    page.locator("[data-trajectory][data-ready]").wait_for()


def annotated(page: Page, url: str) -> None:
    """A verdict, a request for review and a comment that is being written."""
    trajectory(page, url)
    for key in ("2", "r"):
        if page.locator(f"[data-annotate='{key}']").get_attribute("aria-pressed") == "false":
            page.keyboard.press(key)
            page.locator(f"[data-annotate='{key}'][aria-pressed='true']").wait_for()
    page.keyboard.press("c")
    page.locator("#comment-text").fill("Edits the test instead of the code.")


def assigning(page: Page, url: str) -> None:
    trajectory(page, url)
    page.locator("summary:has-text('Assign'), details.menu:has(#assign-panel) > summary").first.click()
    page.locator("#assign-panel form, #assign-panel button").first.wait_for()


def pressed(path: str, keys: str, shows: str) -> Callable[[Page, str], None]:
    """After a key that works on every page."""

    def arrange(page: Page, url: str) -> None:
        page.goto(url + path)
        page.locator("#palette").wait_for(state="attached")
        page.keyboard.press(keys)
        page.locator(shows).first.wait_for()

    return arrange


def palette(page: Page, url: str) -> None:
    pressed("/tasks/", "Control+k", "#palette[open]")(page, url)
    page.keyboard.type("run")
    page.locator("#palette [role='option']").first.wait_for()


def phone_menu(page: Page, url: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{url}/tasks/")
    page.get_by_role("button", name="Open the menu").click()
    page.locator("#sidebar:popover-open").wait_for()


def advanced_form(page: Page, url: str) -> None:
    page.goto(f"{url}/runs/new/?preset=rl-smoke")
    page.get_by_label("Advanced").check()


def sweep_chips(page: Page, url: str) -> None:
    page.goto(f"{url}/runs/new/?preset=rl-smoke")
    field = page.locator("[data-field='stage.rl.optimizer.learning_rate']")
    field.get_by_role("button", name="Sweep").click()
    page.keyboard.type("3e-4,7e-4")
    page.keyboard.press("Enter")
    field.locator(".sweep .chip").nth(2).wait_for()


def toast(page: Page, url: str) -> None:
    page.context.grant_permissions(["clipboard-write"])
    page.goto(f"{url}/runs/?state=finished")
    page.locator("td.strong a").first.click()
    page.get_by_role("navigation", name="Run", exact=True).get_by_role("link", name="Config").click()
    page.get_by_role("button", name="Copy JSON").click()
    page.locator(".toasts .toast").wait_for()


def metric_help(page: Page, url: str) -> None:
    page.goto(f"{url}/runs/?state=running")
    page.locator("td.strong a").first.click()
    page.get_by_role("button", name="Entropy").first.click()
    page.locator("#help-entropy").wait_for()


def key_help(page: Page, url: str) -> None:
    page.goto(f"{url}/tasks/review/")
    page.locator("[data-review]").wait_for()
    page.locator("[data-key-help]").first.click()
    page.locator("dialog[open]").wait_for()


def failing(status: int, template: str) -> Callable[[Page, str], None]:
    """What is answered when the server itself fails or will not go on: its own page, with its own status."""

    def arrange(page: Page, url: str) -> None:
        address = f"{url}/failing-{status}/"
        page.route(
            address, lambda route: route.fulfill(status=status, content_type="text/html", body=rendered(template))
        )
        page.goto(address)

    return arrange


def states(password: str) -> dict[str, State]:
    """All of them by name."""
    return {
        "login": State(at("/login/"), NOBODY),
        "login-refused": State(refused_login, NOBODY),
        "second-factor": State(functools.partial(second_factor, password=password), NOBODY),
        "invitation-used": State(at("/join/?code=gone"), NOBODY),
        "error-403": State(at("/people/"), "viewer"),
        "error-404": State(at("/runs/999999/")),
        "error-429": State(failing(429, "429.html"), NOBODY),
        "error-500": State(failing(500, "500.html"), NOBODY),
        "runs-views": State(opened("/runs/", "#views")),
        "runs-columns": State(opened("/runs/", "#columns")),
        "runs-ticked": State(ticked),
        "runs-nothing": State(at("/runs/?search=nothing-like-this")),
        "run-fork": State(open_row("/runs/?state=finished", "#duplicate")),
        "run-asks": State(asks_first),
        "run-form-plan": State(plan),
        "run-form-refused": State(refused_form),
        "sweep-preview": State(sweep_preview),
        "compare-add": State(compare_menu),
        "rollouts-views": State(opened("/rollouts/", "#views")),
        "group-pair": State(two_rollouts),
        "trajectory-search": State(search_hits),
        "review-done": State(at("/review/calibration/next/")),
        "task-review-keys": State(key_help),
        "people-invited": State(invite),
        "join": State(join),
        "tokens-new": State(new_token),
        "totp": State(confirmed("/2fa/totp/activate/", password=password)),
        "security-keys-add": State(confirmed("/2fa/webauthn/add/", password=password)),
        "recovery-codes": State(confirmed("/2fa/recovery-codes/", password=password), CAREFUL),
        "recovery-codes-new": State(confirmed("/2fa/recovery-codes/generate/", password=password), CAREFUL),
        "totp-off": State(confirmed("/2fa/totp/deactivate/", password=password), CAREFUL),
        "palette": State(palette),
        "help": State(pressed("/rollouts/", "F1", "#help[open]")),
        "shortcuts": State(pressed("/runs/", "?", "#shortcuts[open]")),
        "times": State(opened("/runs/", "summary[aria-label='Times']")),
        "phone-menu": State(phone_menu),
        "toast": State(toast),
        "metric-help": State(metric_help),
        "rollouts-filters": State(opened("/rollouts/", "summary:has-text('Filter')")),
        "run-form-advanced": State(advanced_form),
        "run-form-sweep": State(sweep_chips),
        "trajectory-annotated": State(annotated),
        "trajectory-assign": State(assigning),
        **{name: State(arrange) for name, arrange in working.ARRANGED.items()},
        "menu": State(opened("/", "summary:has-text('admin'), .topbar details.menu:last-of-type > summary")),
    }


FRESH = {
    "fresh-home": "/",
    "fresh-runs": "/runs/",
    "fresh-rollouts": "/rollouts/",
    "fresh-findings": "/findings/",
    "fresh-review": "/review/",
    "fresh-tasks": "/tasks/",
    "fresh-suites": "/suites/",
    "fresh-policies": "/policies/",
    "fresh-evals": "/evaluations/",
    "fresh-releases": "/evaluations/releases/",
    "fresh-datasets": "/datasets/",
    "fresh-corpora": "/datasets/corpora/",
    "fresh-environments": "/environments/",
    "fresh-sessions": "/gateway/sessions/",
    "fresh-alerts": "/alerts/",
    "fresh-alert-rules": "/alerts/rules/",
    "fresh-webhooks": "/alerts/webhooks/",
    "fresh-exports": "/rollouts/exports/",
    "fresh-sweeps": "/runs/sweeps/",
    "fresh-studies": "/runs/studies/",
    "fresh-templates": "/runs/templates/",
    "fresh-drafts": "/drafts/",
    "fresh-generators": "/generators/",
    "fresh-imports": "/imports/",
    "fresh-promotion": "/promotion/",
    "fresh-red-team": "/findings/redteam/",
    "fresh-system": "/system/",
    "fresh-fidelity": "/system/fidelity/",
    "fresh-notifications": "/notifications/",
    "fresh-tokens": "/tokens/",
}
"""What an installation shows where nothing has happened yet: each says what to do next."""
