"""The client's address: told by trusted proxies, ignored from everybody else; the same for log-in, limits and audit."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.core.cache import cache

from composer_web.accounts.models import AuditEntry
from composer_web.core.network import one_thread
from composer_web.core.network.proxies import behind_proxies
from composer_web.env import REPOSITORY
from composer_web.gateway.serving.threads import connected
from scripts.stack import programs
from scripts.stack.layout import Layout
from tests.platform.test_programs import ADDRESSES

pytestmark = pytest.mark.django_db(transaction=True)
PROXIES = "10.1.0.0/16,fd00::1"
LIMIT = 20
"""Refused log-ins a minute from one address (settings: ACCOUNT_RATE_LIMITS)."""


class Visitor:
    """Asks the product, from the address `peer`, with the header that a proxy would add."""

    def __init__(self, peer: str, forwarded: str = "") -> None:
        self.peer, self.forwarded = peer, forwarded

    async def log_in(self, name: str) -> str:
        """The page that a wrong password gets."""
        app = behind_proxies(one_thread.application(), PROXIES)
        headers = {"X-Forwarded-For": self.forwarded} if self.forwarded else {}
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app, client=(self.peer, 1234)),
            base_url="http://testserver",
            headers=headers,
        ) as browser:
            token = (await browser.get("/login/")).cookies["csrftoken"]
            form = {"username": name, "password": "wrong", "csrfmiddlewaretoken": token}
            return (await browser.post("/login/", data=form)).text


@pytest.fixture(autouse=True)
def fresh_counters(db: None) -> None:
    cache.clear()


async def addresses() -> list[str | None]:
    """Where refused log-ins came from, as the audit log has them."""

    def read() -> list[str | None]:
        with connected():  # a thread of its own
            return list(
                AuditEntry.objects.filter(action="user.refused").order_by("id").values_list("address", flat=True)
            )

    return await sync_to_async(read, thread_sensitive=False)()


async def test_people_behind_one_proxy_are_counted_apart() -> None:
    for number in range(LIMIT):
        assert "password is wrong" in await Visitor("10.1.0.9", "203.0.113.7").log_in(f"somebody-{number}")
    assert "password is wrong" not in await Visitor("10.1.0.9", "203.0.113.7").log_in("one-more")
    assert "password is wrong" in await Visitor("10.1.0.9", "198.51.100.4").log_in("somebody-else")
    assert set(await addresses()) == {"203.0.113.7", "198.51.100.4"}


async def test_who_is_no_trusted_proxy_is_counted_by_its_own_address() -> None:
    """Another X-Forwarded-For for each try neither evades the limit nor reaches the audit log."""
    for number in range(LIMIT):
        assert "password is wrong" in await Visitor("192.0.2.66", f"203.0.113.{number}").log_in(f"somebody-{number}")
    assert "password is wrong" not in await Visitor("192.0.2.66", "203.0.113.99").log_in("one-more")
    assert set(await addresses()) == {"192.0.2.66"}


@pytest.mark.parametrize(
    ("peer", "forwarded", "seen"),
    [
        ("10.1.2.3", "203.0.113.7", "203.0.113.7"),
        ("fd00::1", "2001:db8::5", "2001:db8::5"),
        ("::ffff:10.1.2.3", "203.0.113.7", "203.0.113.7"),  # a dual-stack socket
        ("10.1.2.3", "9.9.9.9, 203.0.113.7, 10.1.0.8", "203.0.113.7"),  # what the client wrote itself stands first
        ("10.2.0.1", "203.0.113.7", "10.2.0.1"),
        ("127.0.0.1", "203.0.113.7", "127.0.0.1"),
        ("::ffff:192.0.2.1", "203.0.113.7", "192.0.2.1"),
        ("10.1.2.3", "", "10.1.2.3"),
    ],
)
async def test_the_address_is_the_last_that_a_trusted_proxy_vouches_for(peer: str, forwarded: str, seen: str) -> None:
    await Visitor(peer, forwarded).log_in("somebody")
    assert await addresses() == [seen]


def test_uvicorn_trusts_nobody_by_itself(tmp_path: Path) -> None:
    """Its default would take the header from the loopback, whatever the setting says."""
    (image,) = (line for line in (REPOSITORY / "Dockerfile").read_text().splitlines() if line.startswith("CMD "))
    (web,) = (one for one in programs.product(Layout.open(tmp_path / "d"), ADDRESSES) if one.name == "web")
    for command in (list(web.command), json.loads(image.removeprefix("CMD "))):
        assert "--no-proxy-headers" in command
