"""The head of an answer leaves with its first part, and nothing waits longer for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from trainer.inference.transport import Joined, JoinedProtocol

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"
App = Callable[[dict[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class Recorded(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.packets: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.packets.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


async def test_one_packet_for_head_and_first_part() -> None:
    raw = Recorded()
    joined = Joined(raw, asyncio.get_running_loop())
    for part in (HEAD, b"one", b"two", HEAD, b"three"):
        joined.write(part)
    await asyncio.sleep(0)
    assert raw.packets == [HEAD + b"one", b"two", HEAD + b"three"]
    assert joined.get_extra_info("peername") == ("127.0.0.1", 1)


async def test_a_head_alone_waits_for_nothing_but_this_turn() -> None:
    raw = Recorded()
    joined = Joined(raw, asyncio.get_running_loop())
    joined.write(HEAD)
    assert raw.packets == []
    await asyncio.sleep(0)
    assert raw.packets == [HEAD]
    joined.write(b"late")
    assert raw.packets == [HEAD, b"late"]


async def test_a_head_is_not_lost_with_its_connection() -> None:
    raw = Recorded()
    joined = Joined(raw, asyncio.get_running_loop())
    joined.write(HEAD)
    joined.close()
    await asyncio.sleep(0)
    assert (raw.packets, raw.closed) == ([HEAD], True)


@asynccontextmanager
async def served(app: App) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a uvicorn with the protocol."""
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="off", http=JoinedProtocol)
    )
    running = asyncio.create_task(server.serve())
    async with asyncio.timeout(20):
        while not server.started:
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.servers[0].sockets[0].getsockname()[1])
        yield reader, writer
        writer.close()
        server.should_exit = True
        await running


@pytest.mark.parametrize("streams", [False, True])
async def test_over_a_socket_the_first_read_has_both_and_a_stream_goes_on(streams: bool) -> None:
    go_on = asyncio.Event()

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = [] if streams else [(b"content-length", b"8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"fore", "more_body": True})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"hind"})

    async with served(app) as (reader, writer):
        for _ in range(2):  # a kept connection
            go_on.clear()
            writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            first = await reader.read(65536)
            assert first.startswith(b"HTTP/1.1 200 OK\r\n") and b"\r\n\r\n" in first and b"fore" in first
            go_on.set()
            rest = await reader.readuntil(b"0\r\n\r\n") if streams else await reader.readexactly(4)
            assert b"hind" in rest
