"""What axe-core says of the pages that a person reaches by doing something, in both themes, and whether they fit a narrow and
a very wide screen. Slow: `make test-slow`."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from playwright.sync_api import Browser

from tests.browser import corners, seed
from tests.browser.conftest import Product
from tests.browser.pages.test_accessibility import judge
from tests.browser.pages.test_every_page import FILLS, LARGEST, SIZES
from tests.browser.screenshots import Visitor
from tests.browser.states import State, states

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(1200)]


def wrong(visitor: Visitor, found: Mapping[str, State]) -> str:
    """What is wrong with each, in lines."""
    lines = []
    for name, state in found.items():
        tab = visitor.tab(state.who or "admin")
        tab.set_viewport_size({"width": 1280, "height": 800})
        state.arrange(tab, visitor.url)
        lines += [f"{name}: {one}" for one in judge(tab)]
        for width, height in (*SIZES.values(), LARGEST):
            tab.set_viewport_size({"width": width, "height": height})
            if (needed := tab.evaluate("document.documentElement.scrollWidth")) > width:
                lines.append(f"{name}: needs {needed} of {width}")
        lines += [f"{name}: {one}" for one in tab.evaluate(FILLS)]
    return "\n".join(lines)


def test_what_is_reached_by_doing_something(
    product: Product, chrome: Browser, db: None, django_db_blocker: pytest.FixtureRequest
) -> None:
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        corners.corners(product.world)
    assert not (found := wrong(Visitor(chrome, product.url, seed.PASSWORD), states(seed.PASSWORD))), found
