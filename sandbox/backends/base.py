"""What every sandbox backend offers, and the types it speaks.

A *backend* turns an `EnvSpec` into a running `Sandbox`. Everything the rest of the system knows about
isolation goes through the two protocols at the end of this file; each backend passes the same
conformance suite (`tests/sandbox/backends/`).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Literal, Protocol, Self

log = logging.getLogger(__name__)

HOME = "/home/dev"
"""Home directory inside every sandbox: an overlay whose lower layers are `EnvSpec.layers`."""

WORKDIR = f"{HOME}/repo"
"""The checkout inside the sandbox. Patches are taken from and applied to this directory only."""


class SandboxError(Exception):
    """The sandbox or its host failed: missing data for the caller, never a property of the agent's work."""


class SandboxUnavailable(SandboxError):
    """This machine cannot give what was asked for. The message names what is missing and the remedy."""


class LimitUnenforceable(SandboxUnavailable):
    """A limit that the caller requires cannot be enforced by this backend on this machine, so nothing was started."""


class SandboxLost(SandboxError):
    """The sandbox died or broke its protocol. The work in it is gone; the caller may start another."""


class SandboxExpired(SandboxLost):
    """The sandbox reached `Limits.life_seconds` and was ended: the caller's own bound, not a failure of the machine."""


class SnapshotError(SandboxError):
    """A snapshot cannot be made, found or used. The subclasses say which."""


class SnapshotTooLarge(SnapshotError):
    """The changed files exceed what one snapshot may hold (`Limits.disk_bytes` of content, `Limits.inodes` entries)."""


class SnapshotMissing(SnapshotError):
    """The store holds no snapshot of that digest (it was collected, or never put here)."""


class SnapshotDamaged(SnapshotError):
    """What is stored does not match its digest; it was removed, so putting the snapshot again heals the store."""


class PathError(ValueError):
    """A file operation was refused for its path or content (absent, a directory, too large, not regular)."""


@asynccontextmanager
async def released(sandbox: Sandbox) -> AsyncIterator[Sandbox]:
    """The sandbox, destroyed at the end. One that does not end in time is left to its backend's sweep: what was taken from
    it before counts."""
    try:
        yield sandbox
    finally:
        try:
            await sandbox.close()
        except SandboxError:
            log.warning("sandbox %s did not end", sandbox.name, exc_info=True)


Guarantee = Literal[
    "memory", "processes", "cpu", "disk", "inodes", "files", "output", "time", "network", "seccomp", "users"
]
"""What a backend can promise to hold: `files` is open files and file size, `time` is per call and per life, `users` that
each sandbox is a kernel user of its own, so that nothing the kernel counts by user is shared."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one sandbox. A backend that cannot enforce one of `required` raises LimitUnenforceable.

    The least values that work are in `sandbox/backends/limits.py`.
    """

    memory_bytes: int = 1 << 30
    """All processes together. A command that dies of it ends with EndReason.MEMORY."""
    disk_bytes: int = 512 << 20
    """Written below HOME, /tmp and /dev/shm together (ENOSPC beyond), and the content of one snapshot."""
    inodes: int = 200_000
    """Files and directories made in the same places (ENOSPC beyond)."""
    processes: int = 256
    """Processes and threads alive at once (EAGAIN beyond)."""
    open_files: int = 1024
    """Descriptors of one process (EMFILE beyond)."""
    cpus: float = 1.0
    """CPU seconds a second, all processes together (throttled beyond)."""
    file_bytes: int = 256 << 20
    """Size of one file (EFBIG or SIGXFSZ beyond)."""
    output_bytes: int = 30_000
    """Output kept of one call, half head and half tail; the rest is counted and named as cut."""
    call_seconds: float = 60.0
    """Wall time of a call that names no timeout of its own (EndReason.TIMEOUT beyond)."""
    life_seconds: float = 3600.0
    """Wall time of the sandbox from its start (SandboxExpired beyond)."""
    required: frozenset[Guarantee] = frozenset({"memory", "processes", "disk"})


class Egress(Protocol):
    """The way out of one sandbox while it lives."""

    async def close(self) -> None:
        """Stop answering. Safe to call twice."""
        ...


class Gateway(Protocol):
    """Answers from outside what programs in a sandbox ask at one port of its loopback: their only way out."""

    @property
    def port(self) -> int: ...

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables of every command that lead its tools to the port."""
        ...

    async def serve(self, sandbox: str, listener: socket.socket) -> Egress:
        """Answer at `listener`, a socket that listens inside the sandbox of this name; owned from now on."""
        ...


@dataclass(frozen=True, slots=True)
class NetPolicy:
    """What a sandbox may reach beyond itself: nothing (`NetPolicy.NONE`), or what `gateway` gives (`sandbox/network/`).

    Either way it has no route, no name service and no other address than its own loopback.
    """

    NONE: ClassVar[NetPolicy]
    gateway: Gateway | None = None


NetPolicy.NONE = NetPolicy()


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """A prepared environment: read-only layers merged under the sandbox's writable home.

    `layers` are host directories, uppermost first, each holding what appears below `HOME` (so `<layer>/repo/...` is the
    checkout). They are shared by all sandboxes and never written.
    """

    layers: tuple[Path, ...]
    env: tuple[tuple[str, str], ...] = ()
    """Extra environment variables of every command, on top of the backend's plain user environment."""


class EndReason(StrEnum):
    EXIT = "exit"
    TIMEOUT = "timeout"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class ExecResult:
    """Outcome of one command. `exit_code` is negative for a signal, None when it was ended by the sandbox."""

    exit_code: int | None
    ended: EndReason
    output: bytes
    """stdout and stderr in order of arrival, bounded head + tail (see `Limits.output_bytes`)."""
    total_bytes: int
    seconds: float
    background: int
    """Processes this sandbox still runs after the call returned."""
    result: bytes = b""
    """What the command wrote to the private result descriptor, when `private_result` was asked for."""
    overflowed: bool = False
    """It wrote more there than is taken; `result` is empty then."""
    starved: float = 0.0
    """Seconds that it waited for a processor of a busy machine; measured where `longest` was given."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One changed path below WORKDIR, relative and normalised. `content` is None for a deletion."""

    path: str
    content: bytes | None
    executable: bool = False
    before: bytes | None = None
    """The pristine content, None where the path is new."""


@dataclass(frozen=True, slots=True)
class Patch:
    """The agent's work: regular files changed below WORKDIR, in path order.

    `skipped` names what was left out and why (links, devices, oversized or oddly named files).
    """

    changes: tuple[FileChange, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Files and shell state of a sandbox at one moment (no processes): start others from it with `Backend.start`.

    `layer` is a directory as overlayfs keeps its upper one, on top of the `EnvSpec.layers` it was taken over: changed
    files, a character device 0/0 for each removed name, `user.overlay.opaque` = `y` on each replaced directory. It is
    never written once made, must stay while a sandbox that started from it lives, and suits every backend.
    `SnapshotStore` (`snapshots/`) keeps snapshots by digest, `fork` (`fork.py`) starts many sandboxes from one.
    """

    layer: Path
    shell_state: bytes = b""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend found on this machine. Each missing thing has a reason that names the remedy."""

    usable: bool
    cgroup: Literal["v2", "v1", "none"]
    enforced: frozenset[Guarantee] = frozenset()
    reasons: tuple[str, ...] = field(default=())


class Sandbox(Protocol):
    """One isolated machine. All paths are inside it; every call has a deadline; calls may run concurrently.

    Every call raises SandboxLost when the sandbox is gone, SandboxExpired when its life was over.
    """

    @property
    def name(self) -> str:
        """What log lines and errors call it."""
        ...

    @property
    def limits(self) -> Limits: ...

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
        """Run `command` in a fresh bash that carries cwd, variables, functions and options from the last call.

        With `longest`, time that the command waited for a processor of a busy machine does not count against `timeout`,
        up to `longest` seconds in all; sleeping, stopped and blocked time counts.

        What the command leaves in the background runs on, also after calls that end in other ways than a timeout. A
        call that times out is answered when every process that it started is gone, however those hid (new sessions,
        lost parents, fork bombs).

        With `private_result` the command finds a descriptor number in `$RESULT_FD`; what it writes there comes
        back in `ExecResult.result` (at most 32 MiB) and is visible to nobody else. With `keep_state=False` the
        command starts from the carried state but does not change it (so such calls may overlap).
        """
        ...

    async def read(self, path: str, *, max_bytes: int = 1 << 20) -> bytes:
        """Content of a regular file. Raises PathError."""
        ...

    async def write(self, path: str, content: bytes, *, executable: bool = False) -> None:
        """Create or replace a regular file, making parent directories. Raises PathError."""
        ...

    async def delete(self, path: str) -> None:
        """Remove one regular file. Raises PathError."""
        ...

    async def search(
        self, pattern: str, path: str, *, glob: str | None, max_matches: int
    ) -> list[tuple[str, int, str]]:
        """Lines matching a regular expression below `path` as (path relative to WORKDIR, line number, text).

        Bounded in time and matches; binary and very large files are skipped. Raises PathError, ValueError (pattern).
        """
        ...

    async def list(self, path: str) -> list[tuple[str, Literal["file", "dir", "other"], int]]:
        """Entries of a directory as (name, kind, size in bytes), sorted by name. Raises PathError."""
        ...

    async def diff(self) -> Patch:
        """What differs below WORKDIR from the environment's layers (snapshots count as changes).

        Read from outside the sandbox; what runs in it stands still meanwhile. Bounded in files, bytes, paths and entries:
        what is left out is named in `skipped`.
        """
        ...

    async def snapshot(self, into: Path) -> Snapshot:
        """Copy what differs from the environment's layers, and the shell's state, into the new or empty `into`.

        Processes stand still meanwhile. Raises SnapshotTooLarge, SnapshotError (`into` is not empty).
        """
        ...

    async def stamp(self) -> str:
        """Differs once files or the shell's state have changed: while it is the same, so would a snapshot be.

        Far cheaper than a snapshot: no file is read. Raises SnapshotTooLarge.
        """
        ...

    async def close(self) -> None:
        """Destroy everything. Safe to call twice."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...


class Backend(Protocol):
    name: str

    def probe(self) -> Capabilities: ...

    async def start(
        self,
        env: EnvSpec,
        *,
        limits: Limits = Limits(),
        net: NetPolicy = NetPolicy.NONE,
        snapshot: Snapshot | None = None,
    ) -> Sandbox:
        """A ready sandbox. Raises SandboxUnavailable (will not work here) or SandboxLost (may be tried again)."""
        ...

    async def sweep(self) -> int:
        """Remove what crashed processes of this backend left on this machine; how many things that were.

        What belongs to a living process is never touched. Backends also do this when they are first used.
        """
        ...

    async def close(self) -> None:
        """Stop the backend and every sandbox it still runs."""
        ...
