"""uvicorn transport with fewer packets: sends an answer's head together with its first body part.

uvicorn writes them separately. A waiting client wakes for the head, takes the processor from the server to read it, and
waits again. A gateway between client and engine pays for that twice before the first token.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

NAME = f"{__name__}:JoinedProtocol"
"""Name in the form of uvicorn's `--http` option."""
_HEAD = (b"HTTP/1.1 ", b"HTTP/1.0 ")


class Joined:
    """A transport that delays an answer's head until its first body part is written, or until this turn of the loop
    ends."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head = b""

    def write(self, data: bytes) -> None:
        if not self._head and data.startswith(_HEAD):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        head, self._head = self._head, b""
        self._transport.write(head + data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)

    def __getattr__(self, name: str) -> Any:
        """Delegate everything else to the transport."""
        return getattr(self._transport, name)


class JoinedProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Joined(transport, self.loop))  # type: ignore[arg-type]
