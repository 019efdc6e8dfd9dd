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

from playwright.sync_api import BrowserContext, Page, Response, sync_playwright

from tests.bench.web import web_live
from tests.bench.web.web_data import World
from tests.browser.screenshots import ARGUMENTS, chromium, settle

VIEW = {"width": 1280, "height": 900}
WARM, VISITS = 3, 7
"""Visits that are not counted, and that are."""
PATIENCE_MS = 60_000
SCROLLS = 150
PAGES = (
    "/",
    "/runs/",
    "/rollouts/",
    "/tasks/",
    "/suites/",
    "/evaluations/",
    "/evaluations/releases/",
    "/review/",
    "/policies/",
)
UPDATE = """async ([run, count]) => {
  // As the socket tells it: one more value of every series that the page's charts show. Tasks below 50 ms count as 0.
  const { take } = await import(document.querySelector('link[href$="js/stream.js"]').href);
  const panels = [...document.querySelectorAll("[data-chart]")].map((panel) => JSON.parse(panel.dataset.series));
  const keys = [...new Set(panels.flat().map(({ key }) => key))];
  const took = [];
  new PerformanceObserver((list) => took.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: "longtask" });
  const row = (step) => [step, Math.random(), Math.random(), Math.random()];
  const of = (kept, rows) => Object.fromEntries(keys.map((key) => [key, [kept, rows]]));
  const first = Array.from({ length: 200 }, (_, i) => row(i + 1));
  take({ run: Number(run), base: null, seq: 1, marks: [0, []], series: of(0, first) });
  await new Promise((done) => setTimeout(done, 3000));
  took.length = 0;
  for (let i = 0; i < count; i += 1) {
    take({ run: Number(run), base: i + 1, seq: i + 2, series: of(200 + i, [row(201 + i)]) });
    await new Promise((done) => setTimeout(done, 500));
  }
  return Math.max(0, ...took);
}"""
UPDATES = 40
"""Live updates that are measured, of as many metrics."""
WATCH_LOAD = """
window.blocked = 0; window.shifted = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.blocked += Math.max(0, entry.duration - 50);
}).observe({ type: "longtask", buffered: true });
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""
WATCH_TASKS = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
}).observe({ type: "longtask", buffered: true });
"""


def measure(arguments: argparse.Namespace, world: World) -> dict[str, float]:
    """Milliseconds until a run's first chart is drawn (median of VISITS, and the first visit ever) and of the longest task
    while a trajectory scrolls; kB of compressed JavaScript of the pages without charts; kB, blocking time, live update and
    layout shifts (`_page_kb`, `_loaded`)."""
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
                "run_page_kb": round(_page_kb(context.new_page(), run), 1),
                **_loaded(context, base, run, world.trajectory),
            }
            context.close()
            return found
    finally:
        server.terminate()
        server.wait(20)


def _page_kb(page: Page, url: str) -> float:
    """kB over the wire until the charts in sight are drawn: headers and compressed bodies of every request, nothing kept."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    received: list[float] = []
    session.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    page.goto(url)
    settle(page)
    page.close()
    return sum(received) / 1000


def _loaded(context: BrowserContext, base: str, run: str, trajectory: int) -> dict[str, float]:
    """Total blocking time of the run page (median of VISITS), milliseconds of the longest task of a live update of its charts,
    and the largest layout shift of PAGES while they load."""
    blocked, shifts = [], []
    for _ in range(VISITS):
        page = context.new_page()
        page.add_init_script(WATCH_LOAD)
        page.goto(run)
        settle(page)
        blocked.append(float(page.evaluate("window.blocked")))
        page.close()
    for path in (*PAGES, f"/rollouts/{trajectory}/", urlparse(run).path, f"{urlparse(run).path}charts/"):
        page = context.new_page()
        page.add_init_script(WATCH_LOAD)
        page.goto(base + path)
        settle(page)
        shifts.append(float(page.evaluate("window.shifted")))
        page.close()
    page = context.new_page()
    page.goto(f"{run}charts/")
    settle(page)
    took = float(page.evaluate(UPDATE, [urlparse(run).path.strip("/").rpartition("/")[2], UPDATES]))
    page.close()
    return {
        "tbt_ms": round(statistics.median(blocked), 1),
        "cls_max": round(max(shifts), 4),
        "update_ms": round(took, 1),
    }


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
