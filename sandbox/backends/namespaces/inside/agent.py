"""Pid 1 of a sandbox: an event loop that serves the host's requests, many at a time.

It is the forked zygote without capabilities, not dumpable (so nothing inside can trace it or read its memory or
descriptors) and, being pid 1, immune to signals from inside. Commands run in `shell.py`; file operations run
here, at once, even while commands run; searches run in a forked child with limits of their own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time

from sandbox.backends.namespaces.inside import files, processes, protocol
from sandbox.backends.namespaces.inside.grep import Searches
from sandbox.backends.namespaces.inside.loop import Loop, Stream
from sandbox.backends.namespaces.inside.shell import Shell
from sandbox.backends.namespaces.kernel import identity

HOME = f"/home/{identity.USER}"
WORKDIR = f"{HOME}/repo"
ENVIRONMENT = {
    "HOME": HOME,
    "USER": identity.USER,
    "LOGNAME": identity.USER,
    "SHELL": "/bin/bash",
    "PATH": f"{HOME}/.local/bin:/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TERM": "xterm-256color",
}


class Agent:
    def __init__(self, channel: Stream, request: dict, watchdog: bool, writer: int | None) -> None:
        limits = request["limits"]
        self._inodes = limits["inodes"]
        self._channel = channel
        self._decoder = protocol.Decoder()
        self._loop = Loop(channel, writer)
        self._wake, self._waker = socket.socketpair()
        for end in (self._wake, self._waker):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        memory = limits["memory_bytes"] if watchdog else None
        environment = ENVIRONMENT | dict(request["env"])
        self._searches = Searches(self._loop, WORKDIR)
        self._shell = Shell(self._loop, self._searches, environment, WORKDIR, limits["output_bytes"], memory)
        self._files = files.Files(WORKDIR)

    def run(self) -> None:
        self._loop.attach(self._receive)
        self._loop.watch(self._wake.fileno(), self._reap)
        self._loop.reply(0, {"op": "ready", "inodes": os.statvfs("/tmp").f_files == self._inodes})
        while True:
            deadlines = [at for at in (self._shell.deadline(), self._searches.deadline()) if at is not None]
            self._loop.turn(min(deadlines) - time.monotonic() if deadlines else None)
            now = time.monotonic()
            self._shell.expire(now)
            self._searches.expire(now)

    def _receive(self) -> None:
        try:
            data = self._channel.recv(1 << 20)
        except BlockingIOError:
            return self._loop.flush()
        except OSError:
            data = b""
        if not data:
            os._exit(0)
        for header, blob in self._decoder.feed(data):
            self._serve(header, blob)
        self._loop.flush()

    def _serve(self, header: dict, blob: bytes) -> None:
        number, op = header["id"], header["op"]
        try:
            if op == "exec":
                self._shell.start(number, header, blob)
            elif op == "cancel":
                self._shell.cancel(header["call"])
            elif op == "search":
                self._searches.start(number, header)
            elif op == "freeze":
                self._loop.reply(number, {}, self._shell.freeze())
            elif op == "thaw":
                self._shell.thaw()
            elif op == "state":
                self._loop.reply(number, {}, self._shell.exchange_state(blob))
            else:
                answer, content = self._files.serve(op, header, blob)
                self._loop.reply(number, answer, content)
        except files.Refused as refusal:
            self._refuse(number, "path", str(refusal))
        except OSError as error:
            self._refuse(number, "path", error.strerror or str(error))
        except processes.Unkillable:
            raise
        except Exception as error:  # noqa: BLE001 - what was asked for is the policy's; pid 1 does not end by it
            self._refuse(number, "value", f"{type(error).__name__}: {error}")

    def _refuse(self, number: int, kind: str, text: str) -> None:
        self._loop.reply(number, {"error": kind, "text": text[: protocol.MAX_TEXT_CHARS]})

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake.recv(4096):
                pass
        self._shell.reap()


def main(channel: Stream, request: dict, *, watchdog: bool, writer: int | None = None) -> None:
    """Serve until the host closes `channel`; never returns. `writer`: see Loop."""
    os.umask(0o022)
    os.makedirs(WORKDIR, exist_ok=True)
    os.chdir(WORKDIR)
    Agent(channel, request, watchdog, writer).run()
