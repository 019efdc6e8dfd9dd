"""What the daily jobs cost in clicks and keys, counted while they are really done in Chromium on a small seeded product.

* `clicks_start`: from home to a queued run of a preset.
* `clicks_failure`: from a run's overview to its worst failure.
* `keys_label`: from a trajectory to its verdict.
* `keys_admit`: from the review queue of a draft benchmark to a task in it, over both of the reviewers that it needs.

    python -m tests.bench.web.web_clicks
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile

from playwright.sync_api import Page, expect, sync_playwright

from scripts.stack import ports, throwaway
from tests.bench import report

GOALS: dict[str, report.Goal] = {
    "clicks_start": ("<=", 2.0),
    "clicks_failure": ("<=", 2.0),
    "keys_label": ("<=", 1.0),
    "keys_admit": ("<=", 4.0),
}
DRAFT = "counted"


def main() -> None:
    with throwaway.services() as variables, tempfile.TemporaryDirectory() as data:
        os.environ.update(variables, OPENCOMPOSER_DATA=data, DJANGO_SETTINGS_MODULE="composer_web.settings")
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        metrics = measure()
    report.emit("web_clicks", metrics, goals=GOALS)


def measure() -> dict[str, float]:
    """On the empty, migrated database of the environment, which is seeded."""
    from composer_web.tasks import selectors as tasks
    from composer_web.tasks.curation import services as curation
    from tests.bench.web import web_live
    from tests.browser import seed
    from tests.browser.hands import Mouse
    from tests.browser.screenshots import ARGUMENTS, chromium, log_in

    world = seed.world()
    curation.open_suite(name=DRAFT, purpose="benchmark", reviewed=True, actor=world.people["reviewer"])
    port = ports.any_free()
    server = asyncio.run(web_live.serve(port))
    url, found = f"http://127.0.0.1:{port}", {}
    try:
        with sync_playwright() as playwright:
            chrome = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
            pages = {who: chrome.new_context().new_page() for who in ("operator", "reviewer")}
            for who, page in pages.items():
                log_in(page, url, who, seed.PASSWORD)
            page, hand = pages["operator"], Mouse()
            page.goto(f"{url}/")
            hand.press(page.locator("#start-preset"))
            hand.press(page.get_by_role("button", name=re.compile("^Start .*smoke", re.I)))
            expect(page.locator("#run-head")).to_contain_text("queued")
            found["clicks_start"] = float(hand.presses)
            page.goto(f"{url}/runs/{world.run.pk}/")
            hand = Mouse()
            hand.press(page.locator("#run-failures a").first)
            expect(page.locator("[data-trajectory][data-ready]")).to_be_visible()
            found["clicks_failure"] = float(hand.presses)
            found["keys_label"] = _keys(page, "2", "[data-annotate='2'][aria-pressed='true']")
            admitted = 0.0
            for who in ("operator", "reviewer"):
                pages[who].goto(f"{url}/tasks/review/?into={DRAFT}")
                expect(pages[who].locator("#review[data-ready]")).to_be_visible()
                admitted += _keys(pages[who], "a", "#review-toast:has-text('Accepted')")
            assert tasks.get_suite(DRAFT).versions.count() == 1
            found["keys_admit"] = admitted
            chrome.close()
    finally:
        server.terminate()
        server.wait(20)
    return found


def _keys(page: Page, keys: str, shows: str) -> float:
    """Press each, and see what they lead to; how many they are."""
    for key in keys:
        page.keyboard.press(key)
    expect(page.locator(shows)).to_be_visible()
    return float(len(keys))


if __name__ == "__main__":
    main()
