"""The agent's event loop: readiness callbacks, replies to the host, pipes that are filled as they are read."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import Protocol

from sandbox.backends.namespaces.inside import protocol


class Stream(Protocol):
    """The agent's end of its channel to the host: a socket, or what looks like one."""

    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: bytearray, /) -> int: ...
    def fileno(self) -> int: ...
    def setblocking(self, flag: bool, /) -> None: ...


class Loop:
    """Nothing in it blocks; a host that is gone ends the process."""

    def __init__(self, channel: Stream, writer: int | None = None) -> None:
        """`writer` is the descriptor that takes replies where `channel.fileno()` does not (a pair of pipes)."""
        self._channel, self._writer = channel, writer
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], object]] = {}
        self._unsent = bytearray()
        channel.setblocking(False)

    def watch(self, fd: int, handler: Callable[[], object], *, write: bool = False) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.POLLOUT if write else select.POLLIN)

    def unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None):
            self._poll.unregister(fd)

    def forget(self, fd: int) -> None:
        """Stop watching and close."""
        self.unwatch(fd)
        os.close(fd)

    def feed(self, fd: int, data: bytes) -> None:
        """Write `data` to a pipe as its reader takes it, then close it."""
        os.set_blocking(fd, False)
        left = memoryview(data)

        def push() -> None:
            nonlocal left
            try:
                while left:
                    left = left[os.write(fd, left) :]
            except BlockingIOError:
                return
            except OSError:  # the reader is gone
                left = memoryview(b"")
            self.forget(fd)

        push()
        if left:
            self.watch(fd, push, write=True)

    def reply(self, number: int, header: dict, blob: bytes = b"") -> None:
        self._unsent += protocol.answer(header | {"id": number}, blob)
        self.flush()

    def flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._channel.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            os._exit(0)  # the host is gone, and with pid 1 goes the sandbox
        if self._writer is None:
            self._poll.modify(self._channel.fileno(), select.POLLIN | (select.POLLOUT if self._unsent else 0))
        elif self._unsent:
            self.watch(self._writer, self.flush, write=True)
        else:
            self.unwatch(self._writer)

    def attach(self, handler: Callable[[], None]) -> None:
        self._handlers[self._channel.fileno()] = handler
        self._poll.register(self._channel.fileno(), select.POLLIN)

    def turn(self, timeout: float | None) -> None:
        for fd, _ in self._poll.poll(None if timeout is None else max(0.0, timeout) * 1000):
            handler = self._handlers.get(fd)
            if handler:
                handler()
