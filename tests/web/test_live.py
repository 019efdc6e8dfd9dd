"""Live hints over a real websocket of a real server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest
import uvicorn
import websockets
from django.db import connections, transaction
from django.test import Client
from websockets.asyncio.client import ClientConnection

from composer_web.accounts.models import User
from composer_web.accounts.services import create_user
from composer_web.live.consumer import INTERVAL
from composer_web.live.hints import hint, publish
from tests.web.helpers import eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server(free_port: int) -> Iterator[str]:
    """The product's own ASGI application on a free port."""
    config = uvicorn.Config(
        "composer_web.asgi:application", host="127.0.0.1", port=free_port, log_level="warning", lifespan="off"
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


async def test_without_a_log_in_or_from_another_site_it_closes(server: str, cookie: str) -> None:
    for attempt in (connect(server), connect(server, cookie, origin="http://evil.example")):
        with pytest.raises((websockets.ConnectionClosed, websockets.InvalidStatus)):
            async with attempt as socket:
                await receive(socket)
