"""Log in to a running server and photograph every page, dark and light, wide and narrow.

    python -m tests.browser.screenshots http://127.0.0.1:8000 --user demo --password-file FILE --out docs/img

The newest RL run, rollout, evaluation, task and policy are found by following the pages' own links. PNG files are
palette images where Pillow is installed, so that they stay small.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
CANDIDATES = ("/usr/bin/chromium", "/usr/bin/chromium-headless-shell", "/usr/bin/google-chrome")
WIDTHS = {"wide": (1280, 800), "narrow": (360, 800)}
SUFFIX = {"light": "", "dark": "-dark", "wide": "", "narrow": "-narrow"}
SETTLE_MS = 120_000


def chromium() -> str | None:
    """Path of a browser: $CHROMIUM, else the places where Debian puts it."""
    return next((path for path in (os.environ.get("CHROMIUM", ""), *CANDIDATES) if path and Path(path).is_file()), None)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        sys.exit("no Chromium found: install the package chromium, or set CHROMIUM to its path")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield found
        finally:
            found.close()


def log_in(page: Page, url: str, user: str, password: str) -> None:
    page.goto(f"{url}/login/")
    page.fill("#id_username", user)
    page.fill("#id_password", password)
    page.click("button:has-text('Log in')")
    page.wait_for_url(f"{url}/")


def first_link(page: Page, url: str, path: str, selector: str) -> str | None:
    """Address behind the first matching link of a list page."""
    page.goto(url + path)
    page.locator(f"{selector}, .empty").first.wait_for()  # a live table may be between two answers
    links = page.locator(selector)
    return links.first.get_attribute("href") if links.count() else None


def newest_runs(page: Page, url: str) -> list[str]:
    """Ids of the two newest RL runs."""
    page.goto(f"{url}/runs/?kind=rl")
    page.locator("[data-tick], .empty").first.wait_for()
    return [value for box in page.locator("[data-tick]").all()[:2] if (value := box.get_attribute("value"))]


def places(page: Page, url: str) -> dict[str, str]:
    """Name of the picture → path."""
    trajectory = first_link(page, url, "/rollouts/?verdict=passed", "td.strong a") or first_link(
        page, url, "/rollouts/", "td.strong a"
    )
    group = first_link(page, url, trajectory, "a:has-text('compare')") if trajectory else None
    release = first_link(page, url, "/evals/releases/?sort=created_at", "td.strong a")
    queue = first_link(page, url, "/review/", "td.strong a")
    suite = first_link(page, url, "/suites/", "td.strong a")
    task = first_link(page, url, "/tasks/", "td.strong a")
    newest = newest_runs(page, url)
    found: dict[str, str | None] = {
        "home": "/",
        "runs": "/runs/",
        "run-form": "/runs/new/",
        "sweeps": "/runs/sweeps/",
        "sweep": first_link(page, url, "/runs/sweeps/", "td.strong a"),
        "templates": "/runs/templates/",
        "rollouts": "/rollouts/",
        "findings": "/findings/",
        "finding": first_link(page, url, "/findings/?severity=high", "td.strong a"),
        "red-team": "/findings/redteam/",
        "tasks": "/tasks/",
        "task-review": "/tasks/review/",
        "task-compare": f"{task}compare/" if task else None,
        "disagreements": "/tasks/disagreements/",
        "review": "/review/",
        "review-queue": queue,
        "review-item": f"{queue}next/" if queue else None,
        "drafts": "/drafts/",
        "draft": first_link(page, url, "/drafts/", "td.strong a"),
        "generators": "/generators/",
        "imports": "/imports/",
        "imported": first_link(page, url, "/imports/", "td.strong a"),
        "suites": "/suites/",
        "environments": "/environments/",
        "environment": first_link(page, url, "/environments/", "td.strong a"),
        "environment-new": "/environments/new/",
        "policies": "/policies/",
        "promotion": "/promotion/",
        "gateway": "/sessions/settings/",
        "sessions": "/sessions/",
        "session": first_link(page, url, "/sessions/?malformed=0", "td.strong a"),
        "endpoint": first_link(page, url, "/policies/", "tr:has(.badge:text('endpoint')) td.strong a"),
        "evals": "/evals/",
        "releases": "/evals/releases/",
        "release": release,
        "release-refreshed": first_link(page, url, "/evals/releases/?sort=-created_at", "td.strong a"),
        "regressions": first_link(page, url, release, "a:has-text('task by task')") if release else None,
        "task-history": first_link(page, url, release, "a[title='This task in every evaluation']") if release else None,
        "system": "/system/",
        "projects": "/projects/",
        "project": "/projects/default/",
        "fidelity": "/system/fidelity/",
        "tokens": "/tokens/",
        "security": "/2fa/",
        "security-keys": "/2fa/webauthn/",
        "confirm": "/reauthenticate/?next=/2fa/",
        "password": "/account/password/",
        "task-changes": "/tasks/changes/",
        "log-in-sessions": "/account/sessions/",
        "alerts": "/alerts/",
        "alert-rules": "/alerts/rules/",
        "webhooks": "/alerts/webhooks/",
        "deliveries": "/alerts/deliveries/",
        "notifications": "/notifications/",
        "quotas": "/system/quotas/",
        "api": "/api/v1/docs",
        "run": first_link(page, url, "/runs/?kind=rl", "td.strong a"),
        "compare": "/runs/compare/" + "".join(f"{'&' if i else '?'}run={pk}" for i, pk in enumerate(newest)),
        "run-supervised": first_link(page, url, "/runs/?kind=midtrain", "td.strong a"),
        "trajectory": trajectory,
        "group": group,
        "waffle": f"/rollouts/waffle/{newest[0]}/" if newest else None,
        "exports": "/rollouts/exports/",
        "task": task,
        "suite": suite,
        "suite-difficulty": f"{suite}difficulty/" if suite else None,
        "policy": first_link(page, url, "/policies/", "td.strong a"),
        "evaluation": first_link(page, url, "/evals/?state=finished", "td.strong a"),
    }
    return {name: path for name, path in found.items() if path}


def settle(page: Page) -> None:
    """Wait until the charts in sight are drawn (or say that they have no values), the API's description is there, and no
    part of the page is being fetched: one that is cut off by leaving the page counts as an error."""
    page.wait_for_function(
        """() => !document.querySelector('[data-api-docs]:not(:has(.opblock)), .htmx-request') &&
          [...document.querySelectorAll('[data-chart]')].every(c => {
            const box = c.getBoundingClientRect();
            const told = c.querySelector('.chart__wait')?.textContent.length > 1;
            return box.top > innerHeight || box.height === 0 || c.dataset.points || told;
        })""",
        timeout=SETTLE_MS,
    )


def shrink(path: Path) -> None:
    """Fewer colours: a page needs no more than 256."""
    try:
        from PIL import Image
    except ImportError:
        return
    with Image.open(path) as image:
        image.convert("RGB").quantize(colors=256, method=Image.Quantize.MEDIANCUT).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("url")
    parser.add_argument("--user", default="demo")
    parser.add_argument("--password", default="")
    parser.add_argument("--password-file", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/img"))
    parser.add_argument("--only", default="", help="names of pages, separated by commas")
    parser.add_argument("--themes", default="light,dark")
    parser.add_argument("--widths", default="wide,narrow")
    parser.add_argument("--full", action="store_true", help="the whole page, not only the first screen")
    options = parser.parse_args()
    password = options.password or options.password_file.read_text().strip()
    url = options.url.rstrip("/")
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = set(filter(None, options.only.split(",")))
    with browser() as chrome:
        context = chrome.new_context()
        context.set_default_timeout(SETTLE_MS)
        page = context.new_page()
        page.goto(f"{url}/login/")
        state_pages = {"login": "/login/"} if not wanted or "login" in wanted else {}
        log_in(page, url, options.user, password)
        found = places(page, url)
        if page.request.get(f"{url}/audit/").ok:  # admins only
            found["audit"] = "/audit/"
        signed_in = context.storage_state()
        for theme in options.themes.split(","):
            for width in options.widths.split(","):
                size = {"width": WIDTHS[width][0], "height": WIDTHS[width][1]}
                for names, state in ((state_pages, None), (found, signed_in)):
                    view = chrome.new_context(
                        viewport=size, color_scheme=theme, storage_state=state, reduced_motion="reduce"
                    )
                    view.set_default_timeout(SETTLE_MS)
                    tab = view.new_page()
                    for name, path in names.items():
                        if wanted and name not in wanted:
                            continue
                        tab.goto(url + path)
                        settle(tab)
                        target = options.out / f"{name}{SUFFIX[theme]}{SUFFIX[width]}.png"
                        tab.screenshot(path=target, full_page=options.full)
                        shrink(target)
                        sys.stdout.write(f"{target}\n")
                    view.close()


if __name__ == "__main__":
    main()
