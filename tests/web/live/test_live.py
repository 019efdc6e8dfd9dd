"""Live hints over a real websocket of a real server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator

import pytest
import uvicorn
import websockets
from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.test import Client
from websockets.asyncio.client import ClientConnection

from composer_web.accounts import people
from composer_web.accounts.models import Membership, Project, User
from composer_web.accounts.services import create_user
from composer_web.env import env
from composer_web.live.hints import hint, publish
from composer_web.live.hub import INTERVAL
from composer_web.runs import metrics, services
from composer_web.runs.live import consumer
from composer_web.runs.live.consumer import MAX_WAITING, HintConsumer
from composer_web.runs.live.feed import Feed, Terms
from composer_web.runs.models import Run
from tests.web.helpers import eventually
from tests.web.live.test_feed import Page
from trainer.inference.transport import JoinedProtocol

pytestmark = pytest.mark.django_db(transaction=True)
FRAME_BYTES = 16384
"""As the product is started (tests/web/live/test_live_limits.py looks)."""


@pytest.fixture
def server(free_port: int) -> Iterator[str]:
    """The product's own ASGI application on a free port."""
    config = uvicorn.Config(
        "composer_web.asgi:application",
        host="127.0.0.1",
        port=free_port,
        log_level="warning",
        lifespan="off",
        ws_max_size=FRAME_BYTES,
        http=JoinedProtocol,
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    eventually(lambda: running.started, seconds=30, what="the server")
    yield f"127.0.0.1:{free_port}"
    running.should_exit = True
    thread.join(timeout=20)


@pytest.fixture
def cookie() -> str:
    user: User = create_user(username="viewer", password="correct horse battery", role="viewer")
    client = Client()
    client.force_login(user)
    return f"sessionid={client.cookies['sessionid'].value}"


def connect(server: str, cookie: str = "", origin: str | None = None) -> websockets.connect:
    return websockets.connect(
        f"ws://{server}/ws/live",
        additional_headers={"Cookie": cookie} if cookie else {},
        origin=origin or f"http://{server}",  # type: ignore[arg-type]
    )


async def receive(socket: ClientConnection) -> dict[str, object]:
    message: dict[str, object] = json.loads(await asyncio.wait_for(socket.recv(), 15))
    return message


async def test_a_hint_arrives_after_the_commit(server: str, cookie: str) -> None:
    async with connect(server, cookie) as socket:
        assert "hello" in await receive(socket)
        await socket.send(json.dumps({"subscribe": ["run:7", "runs"]}))
        assert await receive(socket) == {"subscribed": "run:7"}
        assert await receive(socket) == {"subscribed": "runs"}
        await asyncio.to_thread(_commit_and_roll_back)
        first = await receive(socket)
        assert first["topic"] == "run:7"
        await asyncio.to_thread(publish, "run:7")
        second = await receive(socket)
        assert second["topic"] == "run:7" and int(str(second["seq"])) > int(str(first["seq"]))


def _commit_and_roll_back() -> None:
    with transaction.atomic():
        hint("runs")
        transaction.set_rollback(True)
    with transaction.atomic():
        hint("run:7")
    connections.close_all()  # this thread's own


async def test_an_installation_on_another_database_of_the_server_is_not_heard(server: str, cookie: str) -> None:
    base, _, number = env().redis_url.rpartition("/")
    elsewhere = {**os.environ, "OPENCOMPOSER_REDIS_URL": f"{base}/{(int(number) + 1) % 16}"}
    program = "import django; django.setup(); from composer_web.live.hints import publish; publish('run:7')"
    async with connect(server, cookie) as socket:
        await receive(socket)
        await socket.send(json.dumps({"subscribe": ["run:7", "run:8"]}))
        assert await receive(socket) == {"subscribed": "run:7"}
        assert await receive(socket) == {"subscribed": "run:8"}
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], env=elsewhere, check=True, timeout=60)
        await asyncio.to_thread(publish, "run:8")
        assert (await receive(socket))["topic"] == "run:8"


async def test_a_burst_becomes_one_message(server: str, cookie: str) -> None:
    async with connect(server, cookie) as socket:
        await receive(socket)
        await socket.send(json.dumps({"subscribe": ["runs"]}))
        await receive(socket)
        await asyncio.to_thread(publish, *["runs"] * 500, "run:1")
        await socket.send(json.dumps({"subscribe": ["run:2"]}))
        topics = []
        while not topics or "runs" not in topics or "subscribed" not in topics:
            message = await receive(socket)
            topics.append("subscribed" if "subscribed" in message else str(message["topic"]))
        while True:
            try:
                message = json.loads(await asyncio.wait_for(socket.recv(), 3 * INTERVAL))
            except TimeoutError:
                break
            topics.append(str(message.get("topic")))
        # One, or a few when a busy machine spreads the burst over flushes; never one for each, and none of a topic
        # not asked for.
        assert topics.count("runs") <= 20 and "run:1" not in topics


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("not json", "json"),
        ('"text"', "message"),
        ('{"subscribe": ["../etc"]}', "topic"),
        ("x" * 5000, "frame"),
        (b"\0\1", "frame"),
    ],
)
async def test_nonsense_is_answered_and_survived(server: str, cookie: str, frame: str | bytes, code: str) -> None:
    async with connect(server, cookie) as socket:
        await receive(socket)
        await socket.send(frame)
        answer = await receive(socket)
        assert answer["error"]["code"] == code  # type: ignore[index]
        await socket.send('{"ping": 1}')
        assert await receive(socket) == {"pong": 1}


async def test_from_another_site_none_is_opened(server: str, cookie: str) -> None:
    with pytest.raises(websockets.InvalidStatus):
        async with connect(server, cookie, origin="http://evil.example"):
            pass


async def test_without_a_log_in_it_is_closed_with_the_code_that_pages_know(server: str, cookie: str) -> None:
    async with connect(server) as socket:
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await receive(socket)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4401


async def test_without_the_second_factor_that_is_asked_for_it_is_closed(
    server: str, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same policy as pages: also for a connection that was open before the factor was gone."""
    monkeypatch.setattr(consumer, "RECHECK", 0.1)
    async with connect(server, cookie) as open_before:
        await receive(open_before)
        monkeypatch.setattr(env(), "require_mfa", "admins")
        async with connect(server, cookie) as socket:
            assert "hello" in await receive(socket), "it is asked of admins only"
        monkeypatch.setattr(env(), "require_mfa", "everybody")
        for opened in (open_before, await connect(server, cookie)):
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await read_for(opened, "nothing")
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 4401


@pytest.mark.parametrize("path", ["/ws/other", "/", "/ws/live/more"])
async def test_an_address_without_a_websocket_refuses_it(server: str, cookie: str, path: str) -> None:
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with websockets.connect(f"ws://{server}{path}", additional_headers={"Cookie": cookie}):
            pass
    assert refused.value.response.status_code == 403


async def read_until(socket: ClientConnection, page: Page, true: Callable[[], bool]) -> None:
    """Take messages until the page is as it should be. Raises TimeoutError."""
    async with asyncio.timeout(30):
        while not true():
            message = await socket.recv()
            if "run" in json.loads(message):
                page.take(Feed(0), str(message))


async def test_a_watched_run_comes_by_itself(server: str, cookie: str, running: Run) -> None:
    """Points, marks and parts, to two pages, and to one that comes later."""

    def write() -> None:
        for step in range(1, 31):
            metrics.record(run=running, step=step, values={"reward/mean": step / 8, "time/step": 1.0})
        services.add_event(run=running, kind="checkpoint", message="checkpoint of step 30 saved", step=30)
        connections.close_all()

    def whole(page: Page) -> bool:
        steps = [row[0] for row in page.series.get("reward/mean", [])]
        return steps == list(range(1, 31)) and len(page.marks) == 1 and "step 30" in page.parts.get("events", "")

    ask = json.dumps({"watch": [{"run": running.pk, "parts": True}]})
    async with connect(server, cookie) as first, connect(server, cookie) as second, connect(server, cookie) as third:
        pages = [Page(), Page(), Page()]
        for socket, page in ((first, pages[0]), (second, pages[1])):
            await socket.send(ask)
            await read_until(socket, page, lambda page=page: page.seq is not None and "head" in page.parts)  # type: ignore[misc]
        await asyncio.to_thread(write)
        await asyncio.gather(
            *(read_until(s, p, lambda p=p: whole(p)) for s, p in ((first, pages[0]), (second, pages[1])))  # type: ignore[misc]
        )
        await third.send(ask)
        await read_until(third, pages[2], lambda: whole(pages[2]))
        assert pages[0].series == pages[1].series == pages[2].series
        assert "do-pause" not in pages[0].parts["head"]  # a viewer's
        await first.send(json.dumps({"unwatch": [running.pk]}))
        await first.send(json.dumps({"ping": 1}))
        await read_for(first, "pong")


async def read_for(socket: ClientConnection, key: str) -> dict[str, object]:
    async with asyncio.timeout(15):
        while key not in (message := await receive(socket)):
            pass
        return message


@pytest.mark.parametrize("asked", ["none", {"run": "x"}, {"run": 10**9}, {"run": -1}, {"run": 2**80}])
async def test_what_cannot_be_watched_is_refused(server: str, cookie: str, asked: object) -> None:
    async with connect(server, cookie) as socket:
        await socket.send(json.dumps({"watch": [asked]}))
        answer = await read_for(socket, "error")
        assert answer["error"]["code"] == "watch"  # type: ignore[index]


async def test_a_page_that_takes_nothing_gets_everything_later() -> None:
    """Its queue is bounded; what was dropped comes as one whole."""
    sent: list[str] = []
    blocked = asyncio.Event()

    async def send(text_data: str) -> None:
        await blocked.wait()
        sent.append(text_data)

    page = HintConsumer()
    page.behind, page.waiting, page.hints, page.news = set(), deque(), {}, asyncio.Event()
    page.send = send  # type: ignore[method-assign,assignment]
    feed = Feed(7)
    feed.seq = 99
    feed.watchers[page] = Terms(parts=False, may_operate=False)
    writer = asyncio.create_task(page._write())
    for number in range(1000):
        page.take(feed, json.dumps({"run": 7, "seq": number, "base": number - 1}))
        page.offer("run:7", json.dumps({"topic": "run:7", "seq": number}))
        await asyncio.sleep(0)
    assert len(page.waiting) <= MAX_WAITING
    blocked.set()
    async with asyncio.timeout(10):
        while not sent or json.loads(sent[-1]).get("base", 0) is not None:
            await asyncio.sleep(0)
    writer.cancel()
    assert len(sent) <= 4 and json.loads(sent[-1])["seq"] == 99
    assert [json.loads(text)["seq"] for text in sent if "topic" in text][-1] == 999


async def test_a_run_of_another_project_is_refused(server: str, cookie: str, running: Run) -> None:
    """Neither its hints nor its numbers reach somebody who is not in its project."""
    await sync_to_async(Project.objects.filter(pk=running.project_id).update)(open=False)
    async with connect(server, cookie) as socket:
        await receive(socket)
        for frame in ({"subscribe": [f"run:{running.pk}"]}, {"watch": [{"run": running.pk}]}):
            await socket.send(json.dumps(frame))
            assert "error" in await receive(socket), frame


async def test_who_leaves_the_project_is_told_no_more(
    server: str, cookie: str, running: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open page loses what it watches; another role in the project makes another page of it."""
    monkeypatch.setattr(consumer, "RECHECK", 0.1)
    place = Project.objects.filter(pk=running.project_id)
    await place.aupdate(open=False)
    viewer = await User.objects.aget(username="viewer")
    member = await Membership.objects.acreate(project_id=running.project_id, user=viewer, role="operator")
    topic = f"run:{running.pk}"
    async with connect(server, cookie) as socket:
        await receive(socket)
        await socket.send(json.dumps({"subscribe": [topic, "runs"], "watch": [{"run": running.pk, "parts": True}]}))
        await part_that(socket, "head", lambda html: "/pause/" in html)
        await Membership.objects.filter(pk=member.pk).aupdate(role="viewer")
        await part_that(socket, "head", lambda html: "/pause/" not in html)
        await member.adelete()
        gone = [(await read_for(socket, "error"))["error"] for _ in range(2)]
        assert [error["code"] for error in gone] == ["gone", "gone"]  # type: ignore[index]
        await asyncio.to_thread(publish, topic, "runs")
        while (message := await receive(socket)).get("topic") != "runs":  # lists name nothing: they go on
            assert "run" not in message and message.get("topic") != topic
        await User.objects.filter(pk=viewer.pk).aupdate(is_active=False)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await read_for(socket, "nothing")
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4401


def _logged_out(client: Client, user: User) -> None:
    client.logout()


def _sessions_ended(client: Client, user: User) -> None:
    people.end_sessions(user)


def _disabled(client: Client, user: User) -> None:
    people.disable(user=user, actor=None)


def _other_password(client: Client, user: User) -> None:
    user.set_password("another horse battery")
    user.save()


@pytest.mark.parametrize("end", [_logged_out, _sessions_ended, _disabled, _other_password])
async def test_a_connection_ends_with_its_log_in(
    server: str, monkeypatch: pytest.MonkeyPatch, end: Callable[[Client, User], None]
) -> None:
    """And not before: another log-in of the same person that goes on stays connected, unless all of them ended."""
    monkeypatch.setattr(consumer, "RECHECK", 0.1)
    user = await sync_to_async(create_user)(username="viewer", password="correct horse battery", role="viewer")
    here, elsewhere = Client(), Client()
    cookies = []
    for client in (here, elsewhere):
        await sync_to_async(client.force_login)(user)
        cookies.append(f"sessionid={client.cookies['sessionid'].value}")
    async with connect(server, cookies[0]) as socket, connect(server, cookies[1]) as other:
        for one in (socket, other):
            await one.send(json.dumps({"subscribe": ["runs"]}))
            assert (await read_for(one, "subscribed"))["subscribed"] == "runs"
        await sync_to_async(end)(here, user)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await read_for(socket, "nothing")
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4401
        if end is _logged_out:
            await asyncio.to_thread(publish, "runs")
            assert (await read_for(other, "topic"))["topic"] == "runs"
        else:
            with pytest.raises(websockets.ConnectionClosed):
                await read_for(other, "nothing")


async def part_that(socket: ClientConnection, name: str, fits: Callable[[str], bool]) -> None:
    """Take messages until a part of the watched run's page fits. Raises TimeoutError."""
    async with asyncio.timeout(30):
        while True:
            parts = (await receive(socket)).get("parts")
            if isinstance(parts, dict) and fits(str(parts.get(name, ""))):
                return
