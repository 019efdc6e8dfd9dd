"""A channel over a container's standard streams."""

from __future__ import annotations

import socket

from sandbox.backends.docker import bundle, frames
from sandbox.backends.namespaces.channel import Channel

MAX_SAID_BYTES = 2000


class AttachedChannel(Channel):
    """The engine's framing taken off; what came on standard error is kept for messages."""

    def __init__(self, name: str, end: socket.socket, expires: float) -> None:
        super().__init__(name, end, expires)
        self._streams = frames.Streams()
        self._said = b""

    def boot(self, request: dict) -> None:
        """Send the sources and the request that the container waits for."""
        assert self._transport is not None
        self._transport.write(bundle.message(request))

    def data_received(self, data: bytes) -> None:
        for stream, payload in self._streams.feed(data):
            if stream == frames.STDOUT:
                super().data_received(payload)
            else:
                self._said = (self._said + payload)[-MAX_SAID_BYTES:]

    def said(self) -> str:
        """What the container wrote to standard error, if anything."""
        return self._said.decode(errors="replace").strip()
