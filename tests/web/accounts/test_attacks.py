"""Attacks on the web application as a whole: forgery on every address, script in every text, addresses inside, a huge file."""

from __future__ import annotations

import json
import re
import resource
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
import zstandard
from asgiref.sync import async_to_sync
from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.db import IntegrityError, connection, models, transaction
from django.db.models.functions import Cast, Concat
from django.test import AsyncClient, Client
from django.urls import URLPattern, URLResolver, get_resolver, resolve
from django.urls.exceptions import Resolver404

from composer_web.accounts.models import User
from composer_web.api_root import api
from composer_web.core.errors import UserError
from composer_web.core.network import safe_http
from composer_web.policies.addresses import check_url as check_endpoint
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group, Rollout
from composer_web.runs.models import Run
from sandbox.errors import PackageError
from sandbox.network.guard import Guard, Refused
from sandbox.repositories.git import check_url as check_repository
from tests.support.blobs import blob_file
from tests.web.making import claim, finish
from tests.web.seeded import few

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]

# --- forgery ----------------------------------------------------------------------------------------------------

BY_TOKEN_ONLY = {"gateway:chat", "gateway:models", "gateway:model"}
"""They take no cookie, so nobody's browser can be made to use it."""


def every_address(resolver: URLResolver, prefix: str = "", spaces: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """(name, an address that matches) of every pattern, the API's operations apart."""
    for entry in resolver.url_patterns:
        inner = (*spaces, entry.namespace) if isinstance(entry, URLResolver) and entry.namespace else spaces
        text = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from every_address(entry, text, inner)
        elif isinstance(entry, URLPattern):
            filled = re.sub(r"\(\?P<\w+>([^()]*)\)", lambda m: "jsonl" if "jsonl" in m[1] else "1", text)
            filled = re.sub(r"<uuid:\w+>", "0" * 8 + "-0000-4000-8000-" + "0" * 12, filled)
            filled = re.sub(r"<[^>]+>", "1", re.sub(r"[\^$]|\\Z|\\", "", filled))
            yield ":".join((*inner, entry.name or "")), f"/{filled}"


def test_no_address_takes_a_post_that_another_site_made(people: dict[str, User]) -> None:
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(people["admin"])
    seen, open_ = 0, []
    for name, address in every_address(get_resolver()):
        if name.startswith("api-1:") or name in BY_TOKEN_ONLY or "(?:" in address:  # old addresses only redirect
            continue
        try:
            resolve(address)
        except Resolver404:
            pytest.fail(f"{name}: {address} does not match its own pattern")
        seen += 1
        answer = client.post(address)
        if answer.status_code != 403:
            open_.append((name, address, answer.status_code))
    assert seen > 150 and not open_


def test_no_operation_takes_a_session_without_the_csrf_token(people: dict[str, User]) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(people["admin"])
    open_ = []
    for path, operations in api.get_openapi_schema()["paths"].items():
        for verb in set(operations) - {"get"}:
            address = re.sub(r"\{\w*(batch)\}", "0" * 8 + "-0000-4000-8000-" + "0" * 12, path)
            answer = client.generic(
                verb.upper(), re.sub(r"\{[^}]+\}", "1", address), b"{}", content_type="application/json"
            )
            if answer.status_code not in (401, 403):
                open_.append((verb, path, answer.status_code))
    assert not open_


def test_the_gateway_takes_no_session(people: dict[str, User]) -> None:
    client = Client()
    client.force_login(people["admin"])
    body = json.dumps({"model": "production", "messages": [{"role": "user", "content": "x"}]})
    assert client.post("/v1/chat/completions", body, content_type="application/json").status_code == 401


# --- addresses inside -------------------------------------------------------------------------------------------

INSIDE = (
    *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "017700000001", "0", "localhost", "localhost."),
    *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:a9fe:a9fe]", "[::7f00:1]", "[fe80::1]"),
    *("[fc00::1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::a00:1]", "[2002:7f00:1::]", "[ff02::1]"),
    *("169.254.169.254", "2852039166", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
)


@pytest.mark.parametrize("host", INSIDE)
def test_no_spelling_of_an_inner_address_passes(host: str) -> None:
    with pytest.raises((Refused, safe_http.Unreachable)):
        safe_http.check(f"https://{host}/x", Guard())
    with pytest.raises(UserError):
        check_endpoint(f"https://{host}/v1")
    with pytest.raises(PackageError):
        check_repository(f"https://{host}/owner/name")


# --- script -----------------------------------------------------------------------------------------------------

PAYLOAD = "'\"><img xss=1 src=x onerror=alert(1)><script xss=1>{{7*191}}"
SHORT = '"><b xss=1>'
WRITTEN = frozenset(
    [
        "name",
        "title",
        "note",
        "notes",
        "description",
        "instruction",
        "message",
        "cause",
        "text",
        "detail",
        "location",
        "branch",
        "author",
        "reason",
        "error",
        "about",
        "summary",
    ]
)
"""Fields that a model, a repository or a person writes freely."""
REFERRED = {"Suite", "Policy", "Queue", "Release", "Environment", "Repository", "Project"}
"""Their names stand in configurations and addresses, and are plain words."""


class Page(HTMLParser):
    """What a browser would make of a page: elements that should not be, and where it leads."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        source, kind = given.get("src") or "", given.get("type") or ""
        inline = tag == "script" and not source.startswith("/static/") and "json" not in kind
        handler = any(name.startswith("on") or name in ("xss", "style") for name in given)
        leads = [given.get(name) or "" for name in ("href", "src", "action", "hx-get", "hx-post", "formaction")]
        if inline or handler or any(re.match(r"\s*(javascript|data|vbscript):", link, re.I) for link in leads):
            self.wrong.append(self.get_starttag_text() or tag)
        self.links += [given[name] or "" for name in ("href", "hx-get", "data-url") if given.get(name)]


def poison() -> list[str]:
    """The payload in every free text of the database; the fields that took it."""
    took = []
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # history is frozen by triggers
    for model in apps.get_models():
        if not model.__module__.startswith("composer_web") or model is User:
            continue
        for field in model._meta.concrete_fields:
            free = (
                field.name in WRITTEN
                and not field.choices
                and not (field.name == "name" and model.__name__ in REFERRED)
            )
            value: Any = None
            if free and isinstance(field, models.CharField | models.TextField):
                text = PAYLOAD if (field.max_length or 1000) > len(PAYLOAD) + 8 else SHORT
                value = Concat(Cast("pk", models.TextField()), models.Value(text))
            elif isinstance(field, ArrayField) and field.name in ("tags", "labels", "categories"):
                value = [SHORT]
            if value is None or not model._default_manager.exists():
                continue
            try:
                with transaction.atomic():
                    model._base_manager.update(**{field.name: value})
            except IntegrityError:
                continue  # the database itself holds no such text there
            took.append(f"{model.__name__}.{field.name}")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = DEFAULT")
    return took


@pytest.mark.integration
def test_no_text_of_the_database_or_of_a_trajectory_becomes_an_element() -> None:
    """Every kind of page that links lead to from the home page, once or twice each."""
    world = few()  # its first group's trajectories, files, patches and reports are hostile
    took = poison()
    assert len(took) > 15, took
    client = Client()
    client.force_login(world.people["admin"])
    visits: dict[str, int] = {}
    queue, seen, escaped = ["/"], {"/"}, 0
    while queue:
        address = queue.pop(0)
        try:
            kind = resolve(address.partition("?")[0]).view_name
        except Resolver404:
            continue
        if kind.startswith("api-1") or kind in ("accounts:logout", "static") or visits.get(kind, 0) >= 2:
            continue
        visits[kind] = visits.get(kind, 0) + 1
        answer = client.get(address)
        assert answer.status_code < 500, (address, answer.status_code)
        if "text/html" not in answer.get("Content-Type", "") or answer.streaming:
            continue
        text = answer.content.decode()
        page = Page()
        page.feed(text)
        assert not page.wrong, (address, page.wrong[:3])
        assert "1337" not in re.sub(r"\d{5,}", "", text), f"{address}: a template in a text was run"
        policy = answer.get("Content-Security-Policy", "")
        assert "script-src 'self'" in policy and "unsafe" not in policy.partition("script-src")[2].partition(";")[0], (
            address
        )
        escaped += text.count("&lt;img xss=1") + text.count("&lt;b xss=1")
        for link in page.links:
            target = link.partition("#")[0]
            if target.startswith("?"):
                target = address.partition("?")[0] + target
            if target.startswith("/") and target not in seen:
                seen.add(target)
                queue.append(target)
    assert len(visits) > 40, sorted(visits)
    assert escaped > 20, "the payload was on the pages, as text"


# --- a gigabyte -------------------------------------------------------------------------------------------------

GIGABYTE = 1 << 30
MAX_GROWTH = 200 << 20


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.fixture
def huge(running: Run) -> Rollout:
    """A rollout whose blob unpacks to more than a gigabyte, in a few hundred KiB."""
    rollouts.pump(run_id=running.pk)
    group = Group.objects.filter(run=running, state="dispatched").first()
    assert group is not None
    claimed = claim(group)
    finish(claimed.group, claimed.held, [True, False])
    found = Rollout.objects.filter(group=group).first()
    assert found is not None
    head, tail, block = b'{"task_id":"', b'"}', b"<script>alert(1)</script>" * 40_000
    count = GIGABYTE // len(block) + 1
    size = len(head) + len(tail) + count * len(block)
    with blob_file(found.artifact_key).open("wb") as file:
        with zstandard.ZstdCompressor(level=1).stream_writer(file, size=size) as out:
            out.write(head)
            for _ in range(count):
                out.write(block)
            out.write(tail)
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hostile_trajectory_of_a_gigabyte_is_refused_or_streamed(
    huge: Rollout, people: dict[str, User], bearer: Bearer
) -> None:
    client = Client()
    client.force_login(people["viewer"])
    before = peak()
    page = client.get(f"/rollouts/{huge.pk}/")
    assert page.status_code == 200 and "unpacks to more than" in page.content.decode()
    answer = client.get(f"/api/v1/rollouts/{huge.pk}/trajectory", headers=bearer("viewer", "read"))
    assert answer.status_code == 503 and "unpacks to more than" in answer.json()["error"]["message"]
    assert client.get(f"/groups/{huge.group_id}/").status_code == 200

    async def download() -> int:
        """As uvicorn sends it: under ASGI a synchronous stream would be read to its end first."""
        asynchronous = AsyncClient()
        await asynchronous.aforce_login(people["viewer"])
        found = await asynchronous.get(f"/rollouts/{huge.pk}/download/")
        assert found.streaming and found.is_async
        return sum([len(piece) async for piece in found])

    assert async_to_sync(download)() > GIGABYTE
    assert peak() - before < MAX_GROWTH, f"{(peak() - before) >> 20} MiB for a trajectory of a gigabyte"
