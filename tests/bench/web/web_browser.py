"""Chromium before the largest run and the longest trajectory: until the first charts are drawn, and how it scrolls.

The browser has a profile, as people's browsers have: from the third visit on it keeps the compiled code of what a page loads.
The first visit of a new profile is measured apart, and is no median.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import os
import statistics
import tempfile
import time
from urllib.parse import urlparse

from playwright.sync_api import Page, Response, sync_playwright

from tests.bench.web import web_live
from tests.bench.web.web_data import World
from tests.browser.screenshots import ARGUMENTS, chromium

VIEW = {"width": 1280, "height": 900}
WARM, VISITS = 3, 7
"""Visits that are not counted, and that are."""
PATIENCE_MS = 60_000
SCROLLS = 150
WATCH_TASKS = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
}).observe({ type: "longtask", buffered: true });
"""


def measure(arguments: argparse.Namespace, world: World) -> dict[str, float]:
    """Milliseconds until a run's first chart is drawn (median of VISITS, and the first visit ever) and of the longest task
    while a trajectory scrolls; kB of compressed JavaScript of the pages without charts."""
    from django.conf import settings
    from django.test import Client

    from scripts.stack import ports

    visitor = Client()
    visitor.force_login(world.user)
    cookie = visitor.cookies[settings.SESSION_COOKIE_NAME].value
    port = ports.any_free()
    server = asyncio.run(web_live.serve(port))
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    base = f"http://127.0.0.1:{port}"
    try:
        with sync_playwright() as playwright, tempfile.TemporaryDirectory() as profile:
            context = playwright.chromium.launch_persistent_context(
                profile,
                executable_path=chromium(),
                args=list(ARGUMENTS),
                viewport=VIEW,
            )
            context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": base}])
            context.set_default_timeout(PATIENCE_MS)
            run = f"{base}/runs/{world.largest}/"
            interactive = [_interactive(context.new_page(), run) for _ in range(WARM + VISITS)]
            found = {
                "interactive_ms": round(statistics.median(interactive[WARM:]), 1),
                "interactive_first_ms": round(interactive[0], 1),
                "scroll_task_ms_max": round(_scroll(context.new_page(), f"{base}/rollouts/{world.trajectory}/"), 1),
                "script_kb": round(_script_kb(context.new_page(), f"{base}/runs/"), 1),
            }
            context.close()
            return found
    finally:
        server.terminate()
        server.wait(20)


def _interactive(page: Page, url: str) -> float:
    """Milliseconds from the request to the first panel that shows points."""
    began = time.perf_counter()
    page.goto(url, wait_until="commit")
    page.wait_for_function(
        "() => [...document.querySelectorAll('[data-chart]')].some((chart) => chart.dataset.points > 0)"
    )
    took = (time.perf_counter() - began) * 1000
    page.close()
    return took


def _scroll(page: Page, url: str) -> float:
    """The longest task, in milliseconds, while the wheel turns through the trajectory."""
    page.goto(url)
    page.locator("[data-turn]").first.wait_for()
    page.wait_for_load_state("networkidle")
    page.evaluate(WATCH_TASKS)
    page.evaluate("window.longest = 0")
    page.mouse.move(VIEW["width"] / 2, VIEW["height"] / 2)
    for _ in range(SCROLLS):
        page.mouse.wheel(0, 1_200)
        page.evaluate("new Promise((done) => requestAnimationFrame(done))")
    longest = float(page.evaluate("window.longest"))
    page.close()
    return longest


def _script_kb(page: Page, url: str) -> float:
    """Compressed JavaScript that a list page loads."""
    seen: dict[str, int] = {}

    def note(response: Response) -> None:
        if urlparse(response.url).path.endswith(".js"):
            seen[response.url] = len(gzip.compress(response.body()))

    page.on("response", note)
    page.goto(url)
    page.wait_for_load_state("networkidle")
    page.close()
    return sum(seen.values()) / 1000
