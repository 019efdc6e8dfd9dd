"""The host's handle of one sandbox: typed calls over its agent channel and its supervisor's control channel."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Self

from sandbox.backends.base import (
    Egress,
    EndReason,
    ExecResult,
    FileChange,
    Limits,
    Patch,
    PathError,
    SandboxError,
    SandboxLost,
    Snapshot,
    SnapshotError,
    SnapshotTooLarge,
)
from sandbox.backends.namespaces.channel import Channel
from sandbox.backends.namespaces.kernel.identity import sandbox_identity
from sandbox.backends.namespaces.layers import remove_tree

GRACE_SECONDS = 20.0
"""How much later than the agent's own deadline the host gives a call up."""
PATIENCE_SECONDS = 5.0
"""How late an answer may be before the supervisor is asked to see whether somebody holds the agent up."""
FILE_SECONDS = 60.0
SEARCH_SECONDS = 180.0
SUPERVISOR_SECONDS = 900.0
"""For what reads or copies all that a sandbox holds: `Limits.inodes` entries on a slow and busy machine."""
CLOSE_SECONDS = 30.0
MAX_PATH_BYTES = 4096
"""No kernel takes a longer path in one call."""
MAX_PATTERN_CHARS = 1 << 16
REPO = "repo"
"""The checkout, relative to the overlay that the supervisor sees."""


class NamespacesSandbox:
    """A running sandbox. Made by `NamespacesBackend.start`; belongs to the event loop it was started in.

    Calls that keep their state run one after the other, in the order they were made, because each starts from
    what the one before it left. Calls with `keep_state=False`, file operations and searches never wait for them.
    """

    def __init__(
        self,
        *,
        name: str,
        limits: Limits,
        agent: Channel,
        control: Channel,
        closed: Callable[[NamespacesSandbox], None],
        lend: Callable[[str, Path], int] | None = None,
    ) -> None:
        """`lend` opens a host folder as one that this sandbox's user owns, where that user is its own."""
        self.name, self.limits = name, limits
        self._agent, self._control = agent, control
        self._on_close, self._lend = closed, lend
        self._state_lock = asyncio.Lock()
        self._control_lock = asyncio.Lock()
        self._memory_kills = 0
        self._closed = False
        self.egress: Egress | None = None
        """Its way out, when its network policy gives one; ended with it."""
        self.loop = asyncio.get_running_loop()
        """The only event loop that may use this sandbox."""

    async def exec(
        self,
        command: str,
        *,
        timeout: float | None = None,
        longest: float | None = None,
        stdin: bytes = b"",
        env: dict[str, str] | None = None,
        private_result: bool = False,
        keep_state: bool = True,
    ) -> ExecResult:
        if "\0" in command:
            raise ValueError("a command cannot hold a NUL character")
        seconds = self.limits.call_seconds if timeout is None else timeout
        header = {"op": "exec", "command": command, "timeout": seconds, "env": env or {}}
        header |= {"longest": max(seconds, longest or 0.0)}
        header |= {"private_result": private_result, "keep_state": keep_state}
        if not keep_state:
            return await self._exec(header, stdin)
        async with self._state_lock:
            return await self._exec(header, stdin)

    async def read(self, path: str, *, max_bytes: int = 1 << 20) -> bytes:
        _, content = await self._file({"op": "read", "path": path, "max_bytes": max_bytes})
        if len(content) > max_bytes:
            raise self._broken("more content than was asked for")
        return content

    async def write(self, path: str, content: bytes, *, executable: bool = False) -> None:
        await self._file({"op": "write", "path": path, "executable": executable}, content)

    async def delete(self, path: str) -> None:
        await self._file({"op": "delete", "path": path})

    async def search(
        self, pattern: str, path: str, *, glob: str | None, max_matches: int
    ) -> list[tuple[str, int, str]]:
        if max(len(pattern), len(glob or "")) > MAX_PATTERN_CHARS:
            raise ValueError(f"longer than {MAX_PATTERN_CHARS} characters")
        request = {"op": "search", "pattern": pattern, "path": path, "glob": glob, "max_matches": max_matches}
        _, blob = await self._file(request, deadline=SEARCH_SECONDS)
        try:
            return [(_text(file), _count(line), _text(text)) for file, line, text in json.loads(blob)][:max_matches]
        except (TypeError, ValueError, RecursionError) as error:
            raise self._broken(f"bad matches: {error}") from None

    async def list(self, path: str) -> list[tuple[str, Literal["file", "dir", "other"], int]]:
        _, blob = await self._file({"op": "list", "path": path})
        try:
            return [(_text(name), _kind(kind), _count(size)) for name, kind, size in json.loads(blob)]
        except (TypeError, ValueError, RecursionError) as error:
            raise self._broken(f"bad listing: {error}") from None

    async def diff(self) -> Patch:
        try:
            async with self._still():  # what runs would change the tree, and take the processor that reading it needs
                header, blob = await self._supervisor({"op": "diff", "folder": REPO})
        except SnapshotTooLarge as error:  # a net: what is read is bounded, and the rest is named in `skipped`
            return Patch(skipped=((".", f"cannot be read as a patch: {error}"),))
        try:
            offset = _count(header["index"])
            found = json.loads(blob[:offset])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise self._broken(f"bad patch: {error}") from None
        changes = []
        for path, size, before_size, executable in found["changes"]:
            parts: list[bytes | None] = []
            for length in (size, before_size):
                parts.append(None if length is None else blob[offset : offset + length])
                offset += length or 0
            changes.append(FileChange(path=path, content=parts[0], executable=executable, before=parts[1]))
        skipped = tuple((path, reason) for path, reason in found["skipped"])
        return Patch(changes=tuple(sorted(changes, key=lambda change: change.path)), skipped=skipped)

    async def snapshot(self, into: Path) -> Snapshot:
        into.mkdir(parents=True, exist_ok=True)
        if any(into.iterdir()):
            raise SnapshotError(f"snapshot directory {into} is not empty")
        try:
            async with self._still() as state:
                await self._copy_changes(into)
        except BaseException:
            await asyncio.to_thread(remove_tree, str(into.absolute()))
            raise
        return Snapshot(layer=into.resolve(), shell_state=state)

    async def stamp(self) -> str:
        async with self._still() as state:
            header, _ = await self._supervisor({"op": "stamp"})
        return hashlib.sha256(state + str(header["stamp"]).encode()).hexdigest()

    @contextlib.asynccontextmanager
    async def _still(self) -> AsyncIterator[bytes]:
        """Processes stand still meanwhile; the shell's state."""
        try:
            _, state = await self._call({"op": "freeze"}, deadline=SUPERVISOR_SECONDS)
            yield state
        finally:
            self._agent.notify({"op": "thaw"})

    async def _copy_changes(self, into: Path) -> None:
        """Lay what differs from the environment's layers into the empty directory. Raises SnapshotTooLarge."""
        if os.geteuid() == 0:
            os.chown(into, *sandbox_identity())
        request = {"op": "snapshot", "bytes": self.limits.disk_bytes, "entries": self.limits.inodes}
        if self._lend:
            target = await asyncio.to_thread(self._lend, self.name, into.resolve())
        else:
            target = os.open(into, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            await self._supervisor(request, descriptor=target)
        finally:
            os.close(target)

    async def restore_state(self, state: bytes) -> None:
        """Give the shell the state that a snapshot carried."""
        await self._call({"op": "state"}, state, deadline=FILE_SECONDS)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._agent.fail("it was closed")
        try:
            self._control.close_sending()
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._control.ended  # the supervisor leaves last
        except TimeoutError:
            raise SandboxError(f"sandbox {self.name} did not end within {CLOSE_SECONDS:.0f} s") from None
        finally:
            self._control.fail("it was closed")
            self._on_close(self)
            if self.egress is not None:
                await self.egress.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _exec(self, header: dict, stdin: bytes) -> ExecResult:
        seconds = header["longest"]
        number, future = self._agent.send(header, stdin)
        try:
            with self._patience(header["timeout"] + PATIENCE_SECONDS):
                answer, blob = await self._agent.wait(future, seconds + GRACE_SECONDS)
        except asyncio.CancelledError:
            self._agent.notify({"op": "cancel", "call": number})
            raise
        if "error" in answer:
            raise ValueError(str(answer.get("text") or answer["error"]))
        try:
            size, total, background = (_count(answer[key]) for key in ("output", "total", "background"))
            exit_code = answer["exit"]
            if exit_code is not None and type(exit_code) is not int:
                raise TypeError("exit code")
            ended, lasted, overflowed = (
                EndReason(answer["ended"]),
                float(answer["seconds"]),
                answer["overflowed"] is True,
            )
            starved = float(answer["starved"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._broken(f"bad answer to a command: {error}") from None
        if exit_code and await self._memory_was_short():
            exit_code, ended = None, EndReason.MEMORY
        return ExecResult(exit_code, ended, blob[:size], total, lasted, background, blob[size:], overflowed, starved)

    async def _memory_was_short(self) -> bool:
        """Whether the kernel killed for memory since this was last asked."""
        header, _ = await self._supervisor({"op": "memory_kills"})
        seen, self._memory_kills = self._memory_kills, _count(header["count"])
        return self._memory_kills > seen

    async def _file(
        self, header: dict, blob: bytes = b"", *, deadline: float = FILE_SECONDS
    ) -> tuple[dict[str, Any], bytes]:
        try:
            length = len(header["path"].encode())
        except UnicodeEncodeError:
            raise PathError("the path is not valid text") from None
        if length > MAX_PATH_BYTES:
            raise PathError(f"the path is longer than {MAX_PATH_BYTES} bytes")
        return await self._call(header, blob, deadline=deadline)

    async def _call(self, header: dict, blob: bytes = b"", *, deadline: float) -> tuple[dict[str, Any], bytes]:
        with self._patience(PATIENCE_SECONDS):
            answer, content = await self._agent.request(header, blob, deadline=deadline)
        if answer.get("kind") == "large":
            raise PathError(str(answer["error"]))
        if "error" in answer:
            text = str(answer.get("text", ""))
            raise PathError(text) if answer["error"] == "path" else ValueError(text)
        return answer, content

    @contextlib.contextmanager
    def _patience(self, seconds: float) -> Iterator[None]:
        """While the agent owes an answer: after `seconds`, and then again and again, have it rescued."""

        def rescue() -> None:
            self._rescue()
            timers.append(self.loop.call_later(PATIENCE_SECONDS, rescue))

        timers = [self.loop.call_later(seconds, rescue)]
        try:
            yield
        finally:
            timers[-1].cancel()

    def _rescue(self) -> None:
        self._control.notify({"op": "rescue"})

    async def _supervisor(self, header: dict, *, descriptor: int | None = None) -> tuple[dict[str, Any], bytes]:
        async with self._control_lock:
            answer, blob = await self._control.request(header, deadline=SUPERVISOR_SECONDS, descriptor=descriptor)
        if answer.get("kind") == "large":
            raise SnapshotTooLarge(f"sandbox {self.name}: the changed files: {answer['error']}")
        if "error" in answer:
            raise SandboxError(f"sandbox {self.name}: {answer['error']}")
        return answer, blob

    def _broken(self, reason: str) -> SandboxLost:
        self._agent.fail(f"broke the protocol: {reason}")
        return SandboxLost(f"sandbox {self.name}: {self._agent.lost}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is not a count")
    return value


def _kind(value: object) -> Literal["file", "dir", "other"]:
    if value == "file" or value == "dir" or value == "other":
        return value
    raise TypeError(f"{value!r} is not a kind of file")
