"""Log in to a running server and photograph every page: light, dark, and narrow.

    python -m tests.browser.screenshots http://127.0.0.1:8000 --password-file FILE
    python -m tests.browser.screenshots http://127.0.0.1:8001 --password-file FILE --fresh

The first over the world that `python -m tests.browser` makes, the second over an empty database with one admin. Which
pages there are say `places.py` and `states.py`. PNG files are palette images where Pillow is installed, so that they
stay small.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Error, Page, sync_playwright

from tests.browser.places import places
from tests.browser.states import CAREFUL, FRESH, NOBODY, State, at, log_in_carefully, states

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
LOOKS: dict[str, tuple[int, int, Literal["light", "dark"]]] = {
    "": (1280, 800, "light"),
    "dark": (1280, 800, "dark"),
    "narrow": (360, 800, "light"),
    "390": (390, 844, "light"),
    "390-dark": (390, 844, "dark"),
    "1440": (1440, 900, "light"),
    "1440-dark": (1440, 900, "dark"),
    "2560": (2560, 1300, "light"),
    "2560-dark": (2560, 1300, "dark"),
}
"""What the name of a picture ends with → width, height and theme."""
USUAL = ("", "dark", "narrow")
"""Looks of the pictures in the documentation."""
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


def settle(page: Page) -> None:
    """Wait until the charts in sight are drawn (or say that they have no values), the API's description is there, the page
    is connected if it wants to be, and no part of it is being fetched: one that is cut off by leaving the page counts as an
    error."""
    page.wait_for_function(
        """() => !document.querySelector(
            '[data-api-docs]:not(:has(.opblock)), .htmx-request, [data-live-badge][data-state="connecting"]') &&
          [...document.querySelectorAll('[data-chart]')].every(c => {
            const box = c.getBoundingClientRect();
            const told = c.querySelector('.chart__wait')?.textContent.length > 1;
            return box.top > innerHeight || box.bottom < 0 || !c.checkVisibility() || c.dataset.points || told;
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


def look(tab: Page, target: Path, looks: Iterable[str], *, full: bool) -> None:
    """Pictures of what the tab shows now, which is not loaded anew for each."""
    for name in looks:
        width, height, theme = LOOKS[name]
        tab.emulate_media(color_scheme=theme, reduced_motion="reduce")
        tab.set_viewport_size({"width": width, "height": height})
        settle(tab)
        path = target.with_name(f"{target.name}{name and '-'}{name}.png")
        tab.screenshot(path=path, full_page=full, animations="disabled", caret="hide")
        shrink(path)
        sys.stdout.write(f"{path}\n")
        sys.stdout.flush()


class Visitor:
    """Tabs of one person, made when they are first needed."""

    def __init__(self, chrome: Browser, url: str, password: str) -> None:
        self.chrome, self.url, self.password = chrome, url, password
        self.known: dict[str, Page] = {}

    def tab(self, who: str) -> Page:
        if who == NOBODY or who not in self.known:
            context = self.chrome.new_context(color_scheme="light", reduced_motion="reduce")
            context.set_default_timeout(SETTLE_MS)
            self.known[who] = context.new_page()
            if who == CAREFUL:
                log_in_carefully(self.known[who], self.url, password=self.password)
            elif who != NOBODY:
                log_in(self.known[who], self.url, who, self.password)
        return self.known[who]


def every_page(visitor: Visitor, user: str, *, fresh: bool) -> dict[str, State]:
    """Name → how to get there, of the seeded product or of an empty one."""
    if fresh:
        return {name: State(at(path)) for name, path in FRESH.items()}
    found = places(visitor.tab(user), visitor.url)
    return {name: State(at(path)) for name, path in found.items()} | states(visitor.password)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("url")
    parser.add_argument("--user", default="admin")
    parser.add_argument("--password", default="")
    parser.add_argument("--password-file", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/screenshots"))
    parser.add_argument("--only", default="", help="names of pages, separated by commas")
    parser.add_argument("--looks", default=",".join(USUAL), help="separated by commas; the empty one is light and wide")
    parser.add_argument("--fresh", action="store_true", help="the pages of an installation where nothing happened yet")
    parser.add_argument("--full", action="store_true", help="the whole page, not only the first screen")
    options = parser.parse_args()
    password = options.password or options.password_file.read_text().strip()
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = set(filter(None, options.only.split(",")))
    failed = []
    with browser() as chrome:
        visitor = Visitor(chrome, options.url.rstrip("/"), password)
        for name, state in every_page(visitor, options.user, fresh=options.fresh).items():
            if wanted and name not in wanted:
                continue
            tab = visitor.tab(state.who or options.user)
            tab.set_viewport_size({"width": LOOKS[""][0], "height": LOOKS[""][1]})
            try:
                state.arrange(tab, visitor.url)
                look(tab, options.out / name, options.looks.split(","), full=options.full)
            except Error as error:
                failed.append(name)
                sys.stderr.write(f"{name}: {error}\n")
    if failed:
        sys.exit(f"no picture of: {', '.join(failed)}")


if __name__ == "__main__":
    main()
