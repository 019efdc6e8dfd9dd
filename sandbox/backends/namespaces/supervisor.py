"""The supervisor of one sandbox: outside its pid namespace, it holds the writable layer and ends everything.

It answers the host over the control channel, one request at a time: `diff`, `stamp`, `snapshot` (into a
directory whose descriptor comes with the request) and `memory_kills`; `rescue` has no answer. When the host closes that channel,
when the agent dies or when the sandbox's life is over, it kills pid 1 (the kernel takes the rest) and exits.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time

from sandbox.backends.namespaces import layers
from sandbox.backends.namespaces.inside import processes, protocol
from sandbox.backends.namespaces.storage import Storage, failure


class Supervisor:
    def __init__(
        self,
        control: socket.socket,
        agent: int,
        upper: int,
        lower: list[int],
        snapshots: int,
        events: int | None,
        life: float,
    ) -> None:
        self._control, self._agent, self._events = control, agent, events
        self._storage = Storage(upper, lower, snapshots)
        self._end = time.monotonic() + life
        self._decoder = protocol.Decoder()
        self._descriptors: list[int] = []

    def run(self) -> None:
        """Returns when the sandbox is over and its last process is gone."""
        try:
            self._serve()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._agent, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._agent, 0)

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        agent_gone = -1
        with contextlib.suppress(OSError):  # gVisor has no pidfd: the host closes the channel then
            agent_gone = os.pidfd_open(self._agent)
            poll.register(agent_gone, select.POLLIN)
        while (left := self._end - time.monotonic()) > 0:
            for fd, _ in poll.poll(left * 1000):
                if fd == agent_gone or not self._receive():
                    return

    def _receive(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 4)
        except ConnectionError:
            return False
        if not data:
            return False
        self._descriptors += descriptors
        for header, _ in self._decoder.feed(data):
            if header.get("op") == "rescue":
                processes.release(self._agent)
                continue
            try:
                answer, blob = self._answer(header)
            except Exception as error:  # noqa: BLE001 - the host is told, and the sandbox lives on
                answer, blob = failure(header.get("op"), error), b""
            answer["id"] = header.get("id")
            try:
                self._control.sendall(protocol.answer(answer, blob))
            except ConnectionError:
                return False
        return True

    def _answer(self, header: dict) -> tuple[dict, bytes]:
        if header["op"] == "diff":
            return self._storage.diff(header["folder"])
        if header["op"] == "stamp":
            return {"stamp": self._storage.stamp()}, b""
        if header["op"] == "snapshot":
            return self._snapshot(layers.Budget(header["bytes"], header["entries"]))
        if header["op"] == "memory_kills":
            return {"count": self._memory_kills()}, b""
        return {"error": f"unknown request {header['op']!r}"}, b""

    def _snapshot(self, budget: layers.Budget) -> tuple[dict, bytes]:
        if len(self._descriptors) != 1:
            raise OSError("a snapshot needs exactly one directory descriptor")
        target = self._descriptors.pop()
        try:
            self._storage.copy(target, budget)
        finally:
            os.close(target)
        return {}, b""

    def _memory_kills(self) -> int:
        if self._events is None:
            return 0
        for line in os.pread(self._events, 4096, 0).decode().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
        return 0
