"""The short way of a request for an answer, under ASGI: what protects every address protects this one too."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import AuditEntry, User
from composer_web.accounts.services import create_token
from composer_web.asgi import answers, application, http
from composer_web.core.network.latency import latency
from composer_web.gateway import configuration
from composer_web.gateway.errors import RateLimited, Unauthenticated
from composer_web.gateway.serving import admission, token_lookup
from composer_web.gateway.serving.handler import PATH
from composer_web.gateway.serving.openai_types import MAX_BODY, parse
from composer_web.policies.models import Policy
from composer_web.policies.promotion import services as promotion

pytestmark = pytest.mark.django_db(transaction=True)
ASK: dict[str, Any] = {"model": "production", "messages": [{"role": "user", "content": "hello"}]}
PAGES_ONLY = {"Set-Cookie", "Vary"}
"""Headers of sessions and forms."""


async def sent(
    app: Any = application, *, host: str = "localhost", headers: dict[str, str] | None = None, **body: Any
) -> httpx.Response:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
        return await client.post(PATH, headers=headers, **(body or {"json": ASK}))


async def test_it_is_the_way_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def not_this(*_: object) -> None:
        raise AssertionError("the long way")

    monkeypatch.setattr("composer_web.asgi.http", not_this)
    assert (await sent()).status_code == 401


async def test_an_unknown_host_is_refused() -> None:
    answer = await sent(host="evil.example")
    assert answer.status_code == 400 and "error" not in answer.text[:9]
    assert (await sent()).status_code == 401


async def test_headers_are_those_of_the_long_way() -> None:
    short, long = (await sent(answers)).headers, (await sent(http)).headers
    assert {name for name in long if name.title() not in PAGES_ONLY} <= set(short)
    for name in ("x-content-type-options", "x-frame-options", "referrer-policy", "content-security-policy"):
        assert short[name] == long[name]
    assert short["x-frame-options"] == settings.X_FRAME_OPTIONS


async def test_a_session_opens_nothing_and_a_form_is_nothing() -> None:
    answer = await sent(headers={"Cookie": "sessionid=x", "Origin": "https://evil.example"})
    assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key"
    assert "set-cookie" not in answer.headers


async def test_a_body_has_a_bound_whatever_is_said_of_its_length() -> None:
    async def endless() -> Any:
        for _ in range(3 * MAX_BODY // (1 << 20)):
            yield b" " * (1 << 20)

    for body in (b" " * (MAX_BODY + 1), endless()):
        answer = await sent(content=body)
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "body_too_large"
    text = "x" * (MAX_BODY - 1000)  # more than a form may have, and less than the bound
    answer = await sent(json={**ASK, "messages": [{"role": "user", "content": text}]})
    assert answer.status_code == 401


async def test_it_is_counted_like_every_answer() -> None:
    def count() -> float:
        return sum(
            sample.value
            for metric in latency.collect()
            for sample in metric.samples
            if sample.name.endswith("_count") and sample.labels == labels
        )

    labels = {"method": "POST", "route": "gateway:chat", "status": "401"}
    before = count()
    await sent()
    assert count() == before + 1


async def test_a_fault_of_ours_is_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a secret path")

    monkeypatch.setattr("composer_web.gateway.serving.pipeline.parse", broken)
    transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post(PATH, json=ASK)
    assert answer.status_code == 500 and "secret" not in answer.text


def test_admission_asks_little_and_remembers_no_right(
    people: dict[str, User], policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request reads the token, the settings and the promotion: what is taken away is gone with the next request."""
    token, secret = create_token(user=people["viewer"], name="agent", scopes=["gateway"])
    promotion.promote(reference=f"{policy.name}@0")
    request = parse(b'{"model": "production", "messages": [{"role": "user", "content": "hello"}]}')

    def admit() -> admission.Admitted:
        return admission.admit(request, f"Bearer {secret}", admission.Wishes("s", False, ""))

    read: list[dict[str, object]] = []
    row = token_lookup.find_row
    monkeypatch.setattr(token_lookup, "find_row", lambda given: (read.append(given), row(given))[1])
    admit()
    with CaptureQueriesContext(connection) as others:
        assert admit().target.policy_id == policy.pk
    assert (len(read), len(others)) == (2, 0), [query["sql"] for query in others.captured_queries]
    configuration.change(values={"requests_per_minute": 1})
    with pytest.raises(RateLimited):
        admit()
    configuration.change(values={"requests_per_minute": 100})
    user = people["viewer"]
    user.is_active = False
    user.save()
    with pytest.raises(Unauthenticated):
        admit()
    assert not AuditEntry.objects.filter(action__startswith="request.").exists()


async def test_a_client_that_leaves_ends_the_work_on_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()

    async def slow(*_: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(_: object) -> None:
        raise AssertionError("nobody is there")

    monkeypatch.setattr(answers, "respond", slow)
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": b"{}"}, {"type": "http.disconnect"}]
    scope = {"type": "http", "method": "POST", "path": PATH, "query_string": b"", "headers": []}
    async with asyncio.timeout(20):
        await answers(scope, receive, send)
    assert ended.is_set()
