"""Bounded output: the first and the last bytes of a stream, and the count of all."""

from __future__ import annotations


class Capture:
    """Head and tail of a stream, and how much there was in all."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data[-self._half :] if self._half else b""
            if len(self._tail) > 2 * self._half:
                del self._tail[: -self._half]

    def text(self) -> bytes:
        tail = bytes(self._tail[-self._half :]) if self._half else b""
        cut = self.total - len(self._head) - len(tail)
        marker = b"\n[... %d bytes cut ...]\n" % cut if cut else b""
        return bytes(self._head) + marker + tail
