"""A running product for the browser: uvicorn in a thread on a free port over the test database, and Chromium."""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import uvicorn
from django.db import connections
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect

from composer_web.datasets import corpora
from composer_web.datasets import services as datasets
from tests.browser import benchmark, seed
from tests.browser.screenshots import browser, chromium, log_in
from tests.support.snapshot import Snapshot
from trainer.inference import transport

START_SECONDS = 60.0
PATIENCE_MS = 30_000
"""How long the browser is waited for. Generous: a busy machine is slow, not wrong."""

expect.set_options(timeout=PATIENCE_MS)


@dataclass(frozen=True)
class Product:
    url: str
    world: seed.World


class Server(uvicorn.Server):
    """uvicorn without signal handlers, so that it runs in a thread."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """Closed after each module: Playwright keeps an event loop running in this thread, which async tests cannot have.

    Django takes that loop for an async context; its check is off while the browser is open.
    """
    if chromium() is None:
        pytest.skip("no Chromium: install the package chromium or set CHROMIUM (make system does it)")
    with pytest.MonkeyPatch.context() as patch, browser() as found:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        yield found


def _make() -> seed.World:
    world = seed.world()
    benchmark.benchmark(world.people)
    return world


seeded = Snapshot("browser", _make)


@pytest.fixture(scope="module")
def product(django_db_setup: None, django_db_blocker: pytest.FixtureRequest, chrome: Browser) -> Iterator[Product]:
    """The seeded product anew for the module, really committed: the server has connections of its own."""
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        world = seeded()
        with serve() as url:
            yield Product(url, world)


@contextlib.contextmanager
def serve() -> Iterator[str]:
    """Address of a web server over what the database holds, which is emptied in the end."""
    from composer_web.asgi import application

    server = Server(
        uvicorn.Config(
            application, host="127.0.0.1", port=0, log_level="warning", lifespan="off", http=transport.JoinedProtocol
        )
    )
    before = _clients()
    thread = threading.Thread(target=server.run, name="web", daemon=True)
    thread.start()
    end = time.monotonic() + START_SECONDS
    while not server.started:
        assert time.monotonic() < end, f"the web server did not start in {START_SECONDS:.0f} s"
        assert thread.is_alive(), "the web server died at its start"
        thread.join(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)
    _empty_database()
    shutil.rmtree(corpora.root(), ignore_errors=True)
    shutil.rmtree(datasets.root(), ignore_errors=True)  # numbers begin again, and a dataset never replaces another
    _end_connections_of_the_server(before)
    connections["default"].close()  # this one is kept apart from the connection used without a browser
    connections["default"].close_pool()  # the server's threads left theirs there


def _clients() -> set[int]:
    """Server processes of the connections to this database, but for the one that asks."""
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return {pid for (pid,) in cursor.fetchall()}


def _end_connections_of_the_server(before: set[int]) -> None:
    """A process that ends closes its connections; of a thread, those stay whose request was cut off by a closed tab."""
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid", [list(_clients() - before)])


def _empty_database() -> None:
    """Leave nothing behind for tests that share this database; TRUNCATE passes the append-only triggers by."""
    from django.core.management import call_command

    call_command("flush", interactive=False, verbosity=0)


@pytest.fixture
def db(product: Product, django_db_blocker: pytest.FixtureRequest) -> Iterator[None]:
    """Instead of pytest-django's: no transaction around the test, so that the server sees what the test commits.

    The name tells pytest-django to make the test database.
    """
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        yield


@pytest.fixture
def context(chrome: Browser) -> Iterator[BrowserContext]:
    made = chrome.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light", reduced_motion="reduce")
    made.set_default_timeout(PATIENCE_MS)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext, db: None) -> Iterator[Page]:
    with strict_tab(context) as made:
        yield made


@contextlib.contextmanager
def strict_tab(context: BrowserContext) -> Iterator[Page]:
    """A tab that fails its test when the page logs an error (a refused script, a broken module, a 500)."""
    errors: list[str] = []
    made = context.new_page()
    made.on("pageerror", lambda error: errors.append(str(error)))

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and not re.search(r"status of (400|403|404|422)", message.text):
            errors.append(message.text)

    made.on("console", note)
    yield made
    assert not errors, errors


def confirmed(page: Page, button: Locator, question: str) -> None:
    """Press a button that asks first, see what it asks, and go on."""
    name = button.inner_text()
    button.click()
    dialog = page.locator("dialog.confirm")
    expect(dialog.locator("p")).to_have_text(question)
    dialog.get_by_role("button", name=name).click()


@pytest.fixture
def operator(page: Page, product: Product) -> Page:
    log_in(page, product.url, "operator", seed.PASSWORD)
    return page
