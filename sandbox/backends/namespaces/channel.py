"""The host's end of a sandbox socket: requests by number, answers in any order, everything bounded."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from typing import Self

from sandbox.backends.base import SandboxExpired, SandboxLost
from sandbox.backends.namespaces.inside import protocol


class Channel(asyncio.Protocol):
    """One stream of frames. Any breach, and the end of the stream, fails every pending request with SandboxLost."""

    def __init__(self, name: str, end: socket.socket, expires: float) -> None:
        self._name, self._socket, self._expires = name, end, expires
        self._decoder = protocol.Decoder()
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, asyncio.Future[tuple[dict, bytes]]] = {}
        self._number = 0
        self.lost: str | None = None
        """Why no more answers will come, None while they may."""
        self._loss: type[SandboxLost] = SandboxLost
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._hello = self._expect(0)  # it may arrive before anybody asks for it

    @classmethod
    async def open(cls, name: str, end: socket.socket, expires: float = math.inf) -> Self:
        """A channel whose peer is ended at `expires` (monotonic seconds): its end is then SandboxExpired."""
        loop = asyncio.get_running_loop()
        channel = cls(name, end, expires)
        end.setblocking(False)
        await loop.create_connection(lambda: channel, sock=end)
        return channel

    async def hello(self, deadline: float) -> dict:
        """The first frame, which the peer sends unasked."""
        header, _ = await self.wait(self._hello, deadline)
        return header

    async def request(
        self, header: dict, blob: bytes = b"", *, deadline: float, descriptor: int | None = None
    ) -> tuple[dict, bytes]:
        """Raises SandboxLost when the peer is gone, breaks the protocol, or is silent for `deadline` seconds."""
        number, future = self.send(header, blob, descriptor)
        try:
            return await self.wait(future, deadline)
        finally:
            self._pending.pop(number, None)

    def send(
        self, header: dict, blob: bytes = b"", descriptor: int | None = None
    ) -> tuple[int, asyncio.Future[tuple[dict, bytes]]]:
        """Send without waiting, on request with a descriptor; the number and the future of the answer."""
        if self.lost is not None or self._transport is None:
            raise self._lost()
        self._number += 1
        number = self._number
        future = self._expect(number)
        frame = protocol.encode(header | {"id": number}, blob)
        if descriptor is None:
            self._transport.write(frame)
        else:
            assert self._transport.get_write_buffer_size() == 0, "a descriptor travels with its own frame"
            socket.send_fds(self._socket, [frame], [descriptor])
        return number, future

    def notify(self, header: dict) -> None:
        """Send what needs no answer; nothing happens when the peer is gone."""
        if self._transport is not None:
            self._transport.write(protocol.encode(header | {"id": 0}))

    def fail(self, reason: str) -> None:
        """Give the peer up."""
        if self.lost is None:
            self.lost = reason
        for future in self._pending.values():
            if not future.done():
                future.set_exception(self._lost())
                future.exception()  # the waiter may be gone
        self._pending.clear()
        if self._transport is not None:
            self._transport.abort()

    def close_sending(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self.lost is None and time.monotonic() >= self._expires:
            self._loss = SandboxExpired
            self.fail("its life was over")
        self.fail("it died")
        if not self.ended.done():
            self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        try:
            for header, blob in self._decoder.feed(data):
                self._deliver(header, blob)
        except protocol.ProtocolError as error:
            self.fail(f"broke the protocol: {error}")

    def _deliver(self, header: dict, blob: bytes) -> None:
        number = header.get("id", 0)
        if type(number) is not int or number > self._number:
            raise protocol.ProtocolError(f"answer to a request that was never made: {number!r}")
        future = self._pending.pop(number, None)
        if future is not None and not future.done():  # a waiter that was cancelled has no use for it
            future.set_result((header, blob))

    def _expect(self, number: int) -> asyncio.Future[tuple[dict, bytes]]:
        future: asyncio.Future[tuple[dict, bytes]] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        return future

    async def wait(self, future: asyncio.Future[tuple[dict, bytes]], deadline: float) -> tuple[dict, bytes]:
        try:
            async with asyncio.timeout(deadline):
                return await future
        except TimeoutError:
            if future.done() and not future.cancelled():  # it came while this program itself was held up
                return future.result()
            self.fail(f"no answer for {deadline:.0f} s")
            raise self._lost() from None

    def require(self) -> None:
        """Raises SandboxLost when the peer is gone."""
        if self.lost is not None:
            raise self._lost()

    def _lost(self) -> SandboxLost:
        return self._loss(f"sandbox {self._name}: {self.lost or 'not connected'}")
