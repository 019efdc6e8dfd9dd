"""A model of one's own by page alone: from a GGUF file and a fresh installation to a trained step, in at most ten clicks."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from scripts.study.model import gguf
from tests.browser.screenshots import browser, log_in

from .conftest import Stack

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(3600)]
PASSWORD = "first-start-1"
MOST_CLICKS = 10
LONG_MS = 1_800_000
"""How long an import or a step may take on two cores."""


class Hand:
    """Presses and counts. Typing and choosing from a list are no clicks."""

    def __init__(self) -> None:
        self.clicks = 0
        self._began = time.monotonic()
        self.stations: list[str] = []

    def press(self, button: Locator) -> None:
        button.click()
        self.clicks += 1

    def at(self, station: str) -> None:
        self.stations.append(f"{station}: {self.clicks} clicks, {time.monotonic() - self._began:.0f} s")


@pytest.fixture
def page() -> Iterator[Page]:
    with browser() as chrome:
        made = chrome.new_page(viewport={"width": 1440, "height": 900})
        made.set_default_timeout(60_000)
        yield made


def test_a_model_is_imported_and_trained_in_ten_clicks(stack: Stack, page: Page, tmp_path: Path) -> None:
    started = stack.command("up", "--detach", OPENCOMPOSER_PASSWORD=PASSWORD)
    assert started.returncode == 0, started.stderr
    address, model = f"http://127.0.0.1:{stack.variables['OPENCOMPOSER_PORT']}", gguf(tmp_path)
    log_in(page, address, "admin", PASSWORD)
    hand = Hand()
    hand.press(page.get_by_role("button", name="Load sample data"))
    hand.press(page.locator("#sidebar").get_by_role("link", name="Policies"))
    hand.press(page.locator("#import > summary"))
    form = page.get_by_role("form", name="Import a model")
    form.get_by_label("Name").fill("smol")
    form.get_by_label("Path").fill(str(model))
    form.get_by_label("Chat template").select_option("chatml-tools")
    hand.press(form.get_by_role("button", name="Import"))
    policy = page.get_by_role("link", name="smol", exact=True).first
    policy.wait_for(timeout=LONG_MS)
    hand.at("imported")
    hand.press(policy)
    hand.press(page.get_by_role("link", name="start a run").first)
    # A model of this size passes no task yet: reinforcement learning would end with "Run SFT on demonstrations first".
    hand.press(page.get_by_role("link", name="SFT on expert episodes"))
    expect(page.locator("[name='policy']").first).to_have_value("smol@0")
    page.locator("fieldset:not([hidden])").get_by_label("Steps", exact=True).first.fill("1")
    expect(page.locator("#formbar")).to_contain_text("2 changes")
    expect(page.locator("#formbar")).not_to_contain_text("to fix")
    hand.press(page.locator("button[value='start']"))
    expect(page).to_have_url(re.compile(r"/runs/\d+/"))
    hand.at("started")
    expect(page.locator("#run-head")).to_contain_text("finished", timeout=LONG_MS)
    hand.at("trained")
    print(*hand.stations, sep="\n")  # with -s: the figures of docs/guides/train-your-model.md
    assert hand.clicks <= MOST_CLICKS
