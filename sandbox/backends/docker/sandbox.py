"""The host's handle of one sandbox made of containers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.backends.base import Limits, PathError, SandboxError, SnapshotTooLarge
from sandbox.backends.docker import containers, layers
from sandbox.backends.docker.channel import AttachedChannel
from sandbox.backends.docker.engine import Engine, JobFailed
from sandbox.backends.namespaces.sandbox import NamespacesSandbox

KILLS_FILES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Where a container reads how often the kernel killed in it for memory (control groups v2, v1)."""


@dataclass(frozen=True)
class Containers:
    """What a sandbox is made of."""

    keeper: str
    box: str
    store: str
    """The keeper's volume on the engine's machine."""
    snapshots: tuple[str, ...]
    """Layers that count as changes, uppermost first."""


class DockerSandbox(NamespacesSandbox):
    """The agent in the box answers as it does in namespaces; the keeper reads the writable layer from outside."""

    def __init__(
        self,
        *,
        name: str,
        limits: Limits,
        agent: AttachedChannel,
        control: AttachedChannel,
        closed: Callable[[NamespacesSandbox], None],
        engine: Engine,
        kind: containers.Kind,
        made_of: Containers,
        counts_inodes: bool,
        guarded: bool,
    ) -> None:
        super().__init__(name=name, limits=limits, agent=agent, control=control, closed=closed)
        self._engine, self._kind, self._made_of = engine, kind, made_of
        self.counts_inodes = counts_inodes
        """Whether `Limits.inodes` holds."""
        self.guarded = guarded
        """Whether locks on the machine's anonymous inode tell nothing (`namespaces/guard.py`)."""
        self._helping: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    async def _supervisor(self, header: dict, *, descriptor: int | None = None) -> tuple[dict[str, Any], bytes]:
        self._agent.require()  # the keeper outlives the box, and would answer for it
        return await super()._supervisor(header, descriptor=descriptor)

    async def _copy_changes(self, into: Path) -> None:
        owner = layers.OWNER if os.geteuid() == 0 else (os.geteuid(), os.getegid())
        sources = [*reversed(self._made_of.snapshots), f"{self._made_of.store}/upper"]
        config = containers.copier(self._kind, sources, containers.folder(str(into.resolve())))
        request = {"role": "copy", "sources": len(sources), "owner": owner}
        request |= {"budget": (self.limits.disk_bytes, self.limits.inodes)}
        try:
            await self._engine.do(self._engine.job, config, request)
        except JobFailed as error:
            if error.kind == "large":
                raise SnapshotTooLarge(f"sandbox {self.name}: {error}") from None
            raise

    async def close(self) -> None:
        if self._ending is None:
            self._closed = True
            self._ending = asyncio.ensure_future(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        self._agent.fail("it was closed")
        self._control.fail("it was closed")
        if self._helping is not None:
            await asyncio.wait([self._helping])
        try:
            # the box first: its home stands on the keeper's volume
            for container in (self._made_of.box, self._made_of.keeper):
                await self._engine.do(self._engine.remove, container)
        finally:
            self._on_close(self)
            if self.egress is not None:
                await self.egress.close()

    async def _memory_was_short(self) -> bool:
        seen = self._memory_kills
        for path in KILLS_FILES:
            try:
                text = (await self.read(path)).decode(errors="replace")
            except PathError:  # the other version of control groups, or none (gVisor)
                continue
            self._memory_kills = _kills(text)
            break
        return self._memory_kills > seen

    def _rescue(self) -> None:
        if self._helping is None or self._helping.done():
            self._helping = self.loop.create_task(self._help())

    async def _help(self) -> None:
        """A trusted process joins those of the box and ends what holds the agent up."""
        try:
            await self._engine.do(self._engine.job, containers.helper(self._kind, self._made_of.box), {"role": "help"})
        except SandboxError as error:
            if not self._closed:
                self._agent.fail(f"it was held up, and could not be helped: {error}")


def _kills(text: str) -> int:
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdigit():
            return int(value)
    return 0
