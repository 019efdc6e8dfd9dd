"""What one websocket may do: how long its messages are, what is in them, how much it follows and how often it asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import websockets
from asgiref.sync import sync_to_async
from django.db import DatabaseError
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection

from composer_web.accounts.models import User
from composer_web.accounts.services import create_token, create_user
from composer_web.env import REPOSITORY
from composer_web.live import counting
from composer_web.live.messages import MAX_FRAME, MAX_TOPICS, Budget, Message, Misunderstood, read
from composer_web.runs import services
from composer_web.runs.live import consumer, feed
from composer_web.runs.live.consumer import HintConsumer
from composer_web.runs.models import Run
from scripts.stack import programs
from scripts.stack.layout import Layout
from tests.platform.test_programs import ADDRESSES
from tests.web.live.test_live import FRAME_BYTES, connect, cookie, read_for, receive, server
from tests.web.making import SMALL
from trainer.config import RunConfig
from trainer.inference import transport

__all__ = ["cookie", "server"]  # fixtures
pytestmark = pytest.mark.django_db(transaction=True)


async def refused(socket: ClientConnection) -> str:
    error: Any = (await read_for(socket, "error"))["error"]
    return str(error["code"])


async def closed(socket: ClientConnection) -> int:
    """The code with which the server ends it."""
    with pytest.raises(websockets.ConnectionClosed) as ended:
        await read_for(socket, "nothing")
    assert ended.value.rcvd is not None
    return ended.value.rcvd.code


async def test_no_token_opens_a_websocket(server: str, cookie: str) -> None:
    """Not even an administrator's: a page's log-in does."""
    admin = await sync_to_async(create_user)(username="admin", password="correct horse battery", role="admin")
    _, secret = await sync_to_async(create_token)(user=admin, name="found", scopes=["admin"])
    headers = {"Authorization": f"Bearer {secret}"}
    for sent in (headers, {**headers, "Cookie": f"sessionid={secret}"}):
        for address in ("/ws/live", f"/ws/live?token={secret}"):
            with pytest.raises((websockets.ConnectionClosed, websockets.InvalidStatus)):
                async with websockets.connect(
                    f"ws://{server}{address}",
                    additional_headers=sent,
                    origin=f"http://{server}",  # type: ignore[arg-type]
                ) as socket:
                    await receive(socket)


# --- messages ---------------------------------------------------------------------------------------------------

NONSENSE: list[tuple[str | bytes, str]] = [
    ("", "json"),
    ("[" * MAX_FRAME, "json"),
    ('{"subscribe": ' * 200, "json"),
    ('{"a": "\\ud800"}', "json"),
    ("[]", "message"),
    ("null", "message"),
    ("9" * MAX_FRAME, "message"),
    ('{"subscribe": "runs"}', "message"),
    ('{"subscribe": {"runs": 1}}', "message"),
    ('{"unwatch": 12}', "message"),
    ('{"follow": ["runs"]}', "message"),
    ('{"subscribe": [["runs"]]}', "topic"),
    ('{"subscribe": [{}]}', "topic"),
    ('{"subscribe": [null]}', "topic"),
    ('{"subscribe": ["runs\\n"]}', "topic"),
    ('{"subscribe": ["run:-1"]}', "topic"),
    ('{"subscribe": ["run:\u0663"]}', "topic"),  # a digit, and no name of a group
    (json.dumps({"subscribe": [f"run:{'9' * 90}"]}), "topic"),
    ('{"watch": [true]}', "watch"),
    ('{"watch": [{"run": true}]}', "watch"),
    ('{"watch": [{"run": 1e400}]}', "watch"),
    ('{"watch": [[12]]}', "watch"),
    (b'{"subscribe": ["runs"]}', "frame"),
    ("x" * (MAX_FRAME + 1), "frame"),
]


async def test_odd_messages_are_refused_in_words_and_survived(server: str, cookie: str) -> None:
    async with connect(server, cookie) as socket:
        await receive(socket)
        for frame, code in NONSENSE:
            await socket.send(frame)
            assert (frame, await refused(socket)) == (frame, code)
        for harmless in ('{"unsubscribe": [[], {}, 3, "runs"], "unwatch": ["x", [], -1]}', '{"ping": null}'):
            await socket.send(harmless)
        assert await receive(socket) == {"pong": 1}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(["subscribe", "unsubscribe", "watch", "unwatch", "ping", "else"])


def answered(text: str) -> Message | Misunderstood:
    try:
        return read(text)
    except Misunderstood as error:
        return error


@given(st.text(max_size=5000) | VALUES.map(json.dumps) | st.dictionaries(KEYS, VALUES, max_size=6).map(json.dumps))
def test_any_text_is_a_message_or_is_refused(text: str) -> None:
    found = answered(text)
    if isinstance(found, Misunderstood):
        assert found.code in ("frame", "json", "message") and len(str(found)) < 400
    else:
        assert set(json.loads(text)) == found.model_fields_set and found.cost >= 0


@pytest.mark.parametrize("compression", [None, "deflate"])
async def test_a_frame_beyond_any_use_ends_the_connection(server: str, cookie: str, compression: str | None) -> None:
    """Before it is in memory: also one that is small while it is compressed."""
    for frame in ("x" * (FRAME_BYTES + 1), b"\0" * (64 << 20)):
        async with websockets.connect(
            f"ws://{server}/ws/live",
            additional_headers={"Cookie": cookie},
            origin=f"http://{server}",  # type: ignore[arg-type]
            compression=compression,
        ) as socket:
            await receive(socket)
            with contextlib.suppress(websockets.ConnectionClosed):  # refused by its header, before all of it was sent
                await socket.send(frame)
            assert await closed(socket) == 1009


def test_the_product_is_started_with_that_bound(tmp_path: Path) -> None:
    """By the supervisor, and in the image."""
    (image,) = (line for line in (REPOSITORY / "Dockerfile").read_text().splitlines() if line.startswith("CMD "))
    (web,) = (one for one in programs.product(Layout.open(tmp_path / "d"), ADDRESSES) if one.name == "web")
    for command in (list(web.command), json.loads(image.removeprefix("CMD "))):
        assert command[command.index("--ws-max-size") + 1] == str(FRAME_BYTES)
        assert command[command.index("--http") + 1] == transport.NAME
    assert FRAME_BYTES == 4 * MAX_FRAME, "as many bytes as that many characters may have"


# --- how much ---------------------------------------------------------------------------------------------------


async def test_topics_of_a_connection_are_bounded(server: str, cookie: str) -> None:
    async with connect(server, cookie) as socket:
        await receive(socket)
        wanted = [f"run:{number}" for number in range(1, MAX_TOPICS + 2)]
        await socket.send(json.dumps({"subscribe": wanted}))
        told = [(await receive(socket)).get("subscribed") for _ in wanted]
        assert told == [*wanted[:-1], None]
        await socket.send(json.dumps({"subscribe": wanted[-1:]}))
        assert await refused(socket) == "topics"
        await socket.send(json.dumps({"unsubscribe": wanted[:1], "subscribe": wanted[-1:]}))
        assert await read_for(socket, "subscribed") == {"subscribed": wanted[-1]}


async def test_runs_that_a_connection_watches_are_bounded(server: str, cookie: str, running: Run) -> None:
    more = [RunConfig(name=f"run {number}", seed=3, stage=SMALL) for number in range(feed.MAX)]
    runs = [running.pk, *[(await sync_to_async(services.create_run)(config=config)).pk for config in more]]
    async with connect(server, cookie) as socket:
        await receive(socket)
        await socket.send(json.dumps({"watch": [{"run": pk} for pk in runs]}))
        assert await refused(socket) == "watch"
        await socket.send(json.dumps({"unwatch": runs[:1], "watch": [{"run": runs[-1]}], "ping": 1}))
        while "pong" not in (message := await receive(socket)):
            assert "error" not in message


# --- how many ---------------------------------------------------------------------------------------------------


async def admitted(socket: ClientConnection) -> bool:
    """Whether the server greets it; else it is refused in words, and with the code that a page knows."""
    first = await receive(socket)
    if "hello" in first:
        return True
    error: Any = first["error"]
    assert error["code"] == "connections" and "close some" in error["message"]
    assert await closed(socket) == 4430
    return False


async def test_websockets_of_one_person_are_bounded(server: str, cookie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MAX", 3)
    person = (await User.objects.aget(username="viewer")).pk
    other = await sync_to_async(create_user)(username="other", password="correct horse battery", role="admin")
    client = Client()
    await sync_to_async(client.force_login)(other)
    async with contextlib.AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connect(server, cookie)) for _ in range(3)]
        for socket in opened:
            assert await admitted(socket)
        for _ in range(2):
            async with connect(server, cookie) as socket:
                assert not await admitted(socket)
        assert counting.held(person) == 3, "who was refused is not counted"
        async with connect(server, f"sessionid={client.cookies['sessionid'].value}") as socket:
            assert await admitted(socket), "somebody else has his own"
        await opened[0].send('{"ping": 1}')
        await read_for(opened[0], "pong")
        await opened[1].close()
        await wait_until(lambda: counting.held(person) == 2)
        async with connect(server, cookie) as socket:
            assert await admitted(socket), "a closed one makes room"
    await wait_until(lambda: counting.held(person) == counting.held(other.pk) == 0)


async def test_a_websocket_that_breaks_gives_back_what_it_held(
    server: str, cookie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = (await User.objects.aget(username="viewer")).pk
    ended: list[set[str]] = []
    let_go = HintConsumer.leave_groups

    async def noted(page: HintConsumer) -> None:
        await let_go(page)
        assert all(task.done() for task in page.tasks)
        ended.append(page.topics)

    def broken(*_: object) -> bool:
        raise DatabaseError("the database is away")

    monkeypatch.setattr(HintConsumer, "leave_groups", noted)
    monkeypatch.setattr(consumer, "may_follow", broken)
    async with connect(server, cookie) as socket:
        assert await admitted(socket)
        await socket.send('{"subscribe": ["runs", "run:1"]}')
        with pytest.raises(websockets.ConnectionClosed):
            await read_for(socket, "nothing")
    await wait_until(lambda: bool(ended))
    assert ended == [{"runs"}] and counting.held(person) == 0


async def wait_until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.01)


async def all_of(socket: ClientConnection) -> list[str | bytes]:
    """Until the server ends it."""
    found = []
    with contextlib.suppress(websockets.ConnectionClosed):
        async with asyncio.timeout(60):
            while True:
                found.append(await socket.recv())
    return found


# --- how often --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "most"),
    [
        ({"ping": 1}, 300),
        ({"subscribe": ["runs"], "unsubscribe": ["runs"]}, 100),
        ({"subscribe": ["nonsense"] * 200}, 2),
        ({"watch": [{"run": 10**9}] * 20}, 2),
        ("no message", 300),
    ],
)
async def test_who_asks_for_too_much_is_closed(
    server: str, cookie: str, monkeypatch: pytest.MonkeyPatch, frame: Any, most: int
) -> None:
    monkeypatch.setattr(Budget, "EACH_SECOND", 0.0)  # however slow the machine is
    text = frame if isinstance(frame, str) else json.dumps(frame)
    async with connect(server, cookie) as socket, connect(server, cookie) as other:
        await receive(socket)
        with contextlib.suppress(websockets.ConnectionClosed):
            for _ in range(most + 20):
                await socket.send(text)
        answers = [json.loads(one) for one in await all_of(socket)]
        assert socket.close_code == 4429
        codes = [one.get("error", {}).get("code") for one in answers]
        assert codes[-1] == "rate" and codes.count("rate") == 1
        await other.send('{"ping": 1}')
        await read_for(other, "pong")  # another connection of the same person has its own


def test_what_is_spent_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    budget = Budget()
    assert budget.take(Budget.MAX) and not budget.take(1)
    clock[0] += 2 / Budget.EACH_SECOND
    assert budget.take(1) and not budget.take(1)
    clock[0] += 3600
    assert budget.take(Budget.MAX) and not budget.take(1), "an hour of silence is no hour of requests"


def test_a_page_that_opens_is_far_below() -> None:
    opening = Message(subscribe=["run:1"] * MAX_TOPICS, watch=[{"run": 1}] * feed.MAX)
    assert 2 * opening.cost < Budget.MAX
