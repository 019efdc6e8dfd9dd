"""Commands: each call is a fresh bash that starts from the state the last one left, in a session of its own.

State (variables, exports, functions, aliases, options, directory) comes back over a private pipe from an EXIT
trap and is sourced by the next call, so a command may exit, exec, break its syntax or be killed without harm to
the session. A call that times out takes along everything that did not exist when it began, except the process
trees of other calls. Calls overlap freely; the host serialises those that keep their state.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import signal
import time

from sandbox.backends.namespaces.inside import processes, state
from sandbox.backends.namespaces.inside.capture import Capture
from sandbox.backends.namespaces.inside.grep import Searches
from sandbox.backends.namespaces.inside.loop import Loop
from sandbox.backends.namespaces.inside.protocol import DUMP_FD, MAX_RESULT_BYTES, RESULT_FD, STATE_FD
from sandbox.backends.namespaces.inside.starvation import LOOK_SECONDS, Starvation

MAX_STATE_BYTES = 4 << 20
MAX_DRAINS = 64
LOWEST_OWN_FD = 70
READ_BYTES = 1 << 18
WATCH_SECONDS = 0.05
OUT_OF_MEMORY_SCORE = "300"
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD)


class Call:
    """A command that runs."""

    def __init__(self, number: int, pid: int, seconds: float, longest: float, capture: Capture) -> None:
        self.number, self.pid, self.capture = number, pid, capture
        self.began = time.monotonic()
        self.end = self.began + seconds
        self._seconds, self._longest = seconds, longest
        self._starvation = Starvation(self.began) if longest > seconds else None
        self.look_at = self.began + LOOK_SECONDS if longest > seconds else math.inf
        """When it is to be seen how long the machine kept the call waiting."""
        self.ended = "exit"
        self.starved = False
        """The memory watchdog ended one of its processes."""
        self.before: dict[int, int] = {}
        """Processes that were there first: pid → born."""
        self.output = self.dump_fd = self.result_fd = -1
        self.dump, self.result = bytearray(), bytearray()
        self.private: tuple[str, ...] = ()

    @property
    def starved_seconds(self) -> float:
        return self._starvation.seconds if self._starvation else 0.0

    def look(self, now: float) -> None:
        """Put the end off by the time that the call waited for a processor."""
        self.look_at = now + LOOK_SECONDS
        rows = processes.table()
        if self._starvation:
            self._starvation.look(processes.trees({self.pid}, rows), now)
        self.end = self.began + min(self._seconds + self.starved_seconds, self._longest)


class Shell:
    def __init__(
        self,
        loop: Loop,
        searches: Searches,
        environment: dict[str, str],
        workdir: str,
        output_bytes: int,
        memory: int | None,
    ) -> None:
        self._loop, self._searches, self._environment, self._workdir = loop, searches, environment, workdir
        self._output_bytes, self._memory = output_bytes, memory
        self._state = b""
        self._calls: dict[int, Call] = {}
        """By the pid of the call's bash."""
        self._exited: list[tuple[Call, int]] = []
        """Calls whose bash was collected and which are to be answered, with its wait status."""
        self._drains: list[int] = []
        self._sessions: set[int] = set()
        """Sessions opened by calls, ended ones too while something in them lives."""
        self._look_at_memory = 0.0
        self._frozen: set[int] | None = None
        """While files are copied: the processes that were stopped for it."""
        self._freezes = 0
        """Who wants it so; the last one's `thaw` counts."""
        self._held_back: list[tuple[int, dict, bytes]] = []

    def exchange_state(self, blob: bytes) -> bytes:
        """Replace the carried state unless `blob` is empty; the state."""
        if blob:
            self._state = blob
        return self._state

    def freeze(self) -> bytes:
        """Stop all that runs, and hold back new commands until `thaw`; the carried state."""
        if self._frozen is None:
            self._frozen = processes.pause()
        self._freezes += 1
        return self._state

    def thaw(self) -> None:
        self._freezes = max(0, self._freezes - 1)
        if self._freezes:
            return
        if self._frozen is not None:
            processes.resume_all(self._frozen)
        self._frozen = None
        held_back, self._held_back = self._held_back, []
        for call in held_back:
            self.start(*call)

    def deadline(self) -> float | None:
        ends = [min(call.end, call.look_at) for call in self._calls.values()]
        if self._memory is not None and (self._calls or self._drains):
            ends.append(self._look_at_memory)
        return min(ends, default=None)

    def start(self, number: int, header: dict, stdin: bytes) -> None:
        if self._frozen is not None:
            return self._held_back.append((number, header, stdin))
        call, failure = None, ""
        try:
            call = self._spawn(number, header, stdin)
        except OSError as error:
            if error.errno == errno.EAGAIN:  # a fork bomb outlived its call
                self._end_unowned()
                with contextlib.suppress(OSError):
                    call = self._spawn(number, header, stdin)
            failure = error.strerror or str(error)
        except ValueError as error:  # no text that a program can be given
            failure = str(error)
        if call is None:
            text = f"bash: {failure}\n".encode()
            answer = {
                "exit": 126,
                "ended": "exit",
                "total": len(text),
                "seconds": 0.0,
                "background": 0,
                "output": len(text),
                "overflowed": False,
                "starved": 0.0,
            }
            self._loop.reply(number, answer, text)

    def cancel(self, number: int) -> None:
        for held_back, header, _ in self._held_back:
            if held_back == number:
                header["timeout"] = header["longest"] = 0.0
        for call in self._calls.values():
            if call.number == number:
                call.end, call.look_at = 0.0, math.inf

    def expire(self, now: float) -> None:
        for call in list(self._calls.values()):
            if call.look_at < math.inf and min(call.end, call.look_at) <= now:
                call.look(now)
            if call.end <= now and call.pid in self._calls:
                call.look_at = math.inf
                call.ended = "timeout"
                call.end = now + 60.0
                self._end_call(call)
        if self._memory is not None and now >= self._look_at_memory:
            self._look_at_memory = now + WATCH_SECONDS
            self._watch_memory()

    def reap(self) -> None:
        """Collect what has ended; calls whose bash is among them are answered."""
        self._collect()
        while self._exited:
            self._finish(*self._exited.pop(0))

    def _collect(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            call = self._calls.pop(pid, None)
            if call:
                self._exited.append((call, status))
            else:
                self._searches.reaped(pid)

    def _spawn(self, number: int, header: dict, stdin: bytes) -> Call:
        keep = header["keep_state"]
        environment = self._environment | header["env"]
        before = {pid: processes.born(pid) for pid in processes.pids()}
        opened: list[int] = []
        actions: list[tuple[int, int, int]] = []

        def pipe() -> tuple[int, int]:
            pair = os.pipe()
            opened.extend(pair)
            return pair

        def give(fd: int, *targets: int) -> None:
            high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, LOWEST_OWN_FD)  # out of the way of the targets
            opened.append(high)
            actions.extend((os.POSIX_SPAWN_DUP2, high, target) for target in targets)

        call = Call(number, 0, header["timeout"], header["longest"], Capture(self._output_bytes))
        kept: list[int] = []
        try:
            call.output, writer = pipe()
            give(writer, 1, 2)
            kept.append(call.output)
            feeds: list[tuple[int, bytes]] = []
            if stdin:
                reader, writer = pipe()
                give(reader, 0)
                feeds.append((writer, stdin))
            else:
                null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
                opened.append(null)
                give(null, 0)
            if keep or self._state:
                reader, writer = pipe()
                give(reader, STATE_FD)
                feeds.append((writer, state.opening(self._state, keep=keep)))
                environment["BASH_ENV"] = f"/dev/fd/{STATE_FD}"
            if keep:
                call.dump_fd, writer = pipe()
                give(writer, DUMP_FD)
                kept.append(call.dump_fd)
            if header["private_result"]:
                call.result_fd, writer = pipe()
                give(writer, RESULT_FD)
                kept.append(call.result_fd)
                environment["RESULT_FD"] = str(RESULT_FD)
            self._enter_workdir()
            call.pid = os.posix_spawn(
                "/bin/bash",
                ["bash", "-c", header["command"]],
                environment,
                file_actions=actions,
                setsid=True,
                setsigdef=_DEFAULT_SIGNALS,
            )
        except BaseException:
            for fd in opened:
                os.close(fd)
            raise
        fed = {fd for fd, _ in feeds}
        for fd in opened:
            if fd not in kept and fd not in fed:
                os.close(fd)
        call.before = before
        call.private = tuple(header["env"])
        self._calls[call.pid] = call
        self._sessions.add(call.pid)
        _prefer_as_victim(call.pid)
        for fd, data in feeds:
            self._loop.feed(fd, data)
        for fd in kept:
            os.set_blocking(fd, False)
        self._loop.watch(call.output, lambda: self._read_output(call))
        if call.dump_fd >= 0:
            self._loop.watch(call.dump_fd, lambda: self._read_side(call, "dump_fd", call.dump, MAX_STATE_BYTES))
        if call.result_fd >= 0:
            self._loop.watch(call.result_fd, lambda: self._read_side(call, "result_fd", call.result, MAX_RESULT_BYTES))
        return call

    def _enter_workdir(self) -> None:
        try:
            os.chdir(self._workdir)
        except OSError:  # the command removed it; it will see that for itself
            os.chdir("/")

    def _read_output(self, call: Call) -> bool:
        data = _read(call.output)
        if data:
            call.capture.add(data)
        elif data == b"":
            self._loop.forget(call.output)
            call.output = -1
        return bool(data)

    def _read_side(self, call: Call, name: str, sink: bytearray, limit: int) -> bool:
        fd = getattr(call, name)
        data = _read(fd)
        if data:
            sink += data[: limit + 1 - len(sink)]
        elif data == b"":
            self._loop.forget(fd)
            setattr(call, name, -1)
        return bool(data)

    def _finish(self, call: Call, status: int) -> None:
        """The call's bash has ended: take what is in the pipes (daemons may hold them open) and answer."""
        for _ in range(MAX_DRAINS):
            if call.output < 0 or not self._read_output(call):
                break
        for name, sink, limit in (
            ("dump_fd", call.dump, MAX_STATE_BYTES),
            ("result_fd", call.result, MAX_RESULT_BYTES),
        ):
            while getattr(call, name) >= 0 and self._read_side(call, name, sink, limit):
                pass
            if getattr(call, name) >= 0:
                self._loop.forget(getattr(call, name))
        if call.dump and len(call.dump) <= MAX_STATE_BYTES:
            self._state = state.carried(bytes(call.dump), call.private)
        background = self._background()
        if call.output >= 0:
            self._keep_draining(call.output) if background else self._loop.forget(call.output)
        exit_code = os.waitstatus_to_exitcode(status)
        if call.starved and call.ended == "exit" and exit_code:
            call.ended = "memory"
        output = call.capture.text()
        overflowed = len(call.result) > MAX_RESULT_BYTES
        result = b"" if overflowed else bytes(call.result)
        answer = {
            "exit": exit_code if call.ended == "exit" else None,
            "ended": call.ended,
            "total": call.capture.total,
            "seconds": round(time.monotonic() - call.began, 6),
            "background": background,
            "output": len(output),
            "overflowed": overflowed,
            "starved": round(call.starved_seconds, 6),
        }
        self._loop.reply(call.number, answer, output + result)

    def _keep_draining(self, fd: int) -> None:
        """Background jobs go on writing somewhere; the oldest lose their reader when there are too many."""

        def drain() -> None:
            if _read(fd) == b"":
                self._drains.remove(fd)
                self._loop.forget(fd)

        self._loop.unwatch(fd)
        self._loop.watch(fd, drain)
        self._drains.append(fd)
        if len(self._drains) > MAX_DRAINS:
            self._loop.forget(self._drains.pop(0))

    def _background(self) -> int:
        """Processes that run outside any call."""
        alive = set(processes.pids()) - self._searches.running()
        if not alive:
            self._sessions &= set(self._calls)
            return 0
        rows = processes.table()
        self._sessions &= set(self._calls) | {row.session for row in rows.values()}
        busy = processes.trees(set(self._calls), rows) | self._searches.running()
        return sum(1 for pid, row in rows.items() if row.alive and pid not in busy)

    def _end_call(self, call: Call) -> None:
        def spared(rows: dict[int, processes.Process]) -> set[int]:
            first = {pid for pid, row in rows.items() if call.before.get(pid) == row.born}
            spared = processes.trees((self._sessions - {call.pid}) | first, rows)
            return (spared | self._searches.running()) - processes.trees({call.pid}, rows)

        processes.end(spared, self._collect)
        self.reap()

    def _end_unowned(self) -> None:
        def spared(rows: dict[int, processes.Process]) -> set[int]:
            return processes.trees(set(self._calls), rows) | self._searches.running()

        processes.end(spared, self._collect)
        self.reap()

    def _watch_memory(self) -> None:
        """Without a control group: while all processes together hold too much, end the largest."""
        limit = self._memory or 0
        alive = processes.pids()
        if sum(processes.resident_bytes(pid) for pid in alive) <= limit:
            return
        sizes = {pid: processes.own_bytes(pid) for pid in alive}
        while sizes and sum(sizes.values()) > limit:
            largest = max(sizes, key=lambda pid: sizes[pid])
            rows = processes.table()
            for call in self._calls.values():
                call.starved |= largest in processes.trees({call.pid}, rows)
            with contextlib.suppress(OSError):
                os.kill(largest, signal.SIGKILL)
            del sizes[largest]


def _read(fd: int) -> bytes | None:
    """What is there: None for nothing yet, empty at the end."""
    try:
        return os.read(fd, READ_BYTES)
    except BlockingIOError:
        return None


def _prefer_as_victim(pid: int) -> None:
    """When memory runs out the kernel takes the command, never the agent."""
    with contextlib.suppress(OSError):
        fd = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, OUT_OF_MEMORY_SCORE.encode())
        finally:
            os.close(fd)
