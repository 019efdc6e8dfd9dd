"""What the long walks share: an empty product with people, a free port for its engine, and pictures of the stations.

A walk imports the fixtures by name, in place of those of `conftest`, whose product is seeded.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from composer_web.accounts.models import User
from tests.browser import seed
from tests.browser.screenshots import LOOKS, look

PICTURES = os.environ.get("WALK_PICTURES", "")
"""Where pictures are kept; empty for none."""


@pytest.fixture
def db(django_db_setup: None, django_db_blocker: pytest.FixtureRequest, chrome: Browser) -> Iterator[None]:
    """The empty database, really committed to. Its name tells pytest-django to make one."""
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        yield


@pytest.fixture
def people(db: None) -> dict[str, User]:
    return seed.users()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def picture(page: Page, name: str, *looks: str) -> None:
    """What this station looks like, if pictures are wanted: light, and in the other `looks` (dark, narrow).
    The page is not loaded anew."""
    if not PICTURES:
        return
    look(page, Path(PICTURES) / name, ("", *looks), full=False)
    width, height, theme = LOOKS[""]
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": height})
