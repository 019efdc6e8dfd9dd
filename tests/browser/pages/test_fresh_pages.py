"""The same for the pages of an installation where nothing happened yet. Slow: `make test-slow`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from composer_web.accounts.services import create_user
from tests.browser import seed
from tests.browser.conftest import serve
from tests.browser.pages.test_every_state import wrong
from tests.browser.screenshots import Visitor
from tests.browser.states import FRESH, State, at

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def product(django_db_setup: None, django_db_blocker: pytest.FixtureRequest, chrome: Browser) -> Iterator[str]:
    """Address of one that knows its first administrator only."""
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        create_user(username="admin", password=seed.PASSWORD, role="admin")
        with serve() as url:
            yield url


def test_pages_without_anything_on_them(product: str, chrome: Browser, db: None) -> None:
    pages = {name: State(at(path)) for name, path in FRESH.items()}
    assert not (found := wrong(Visitor(chrome, product, seed.PASSWORD), pages)), found
