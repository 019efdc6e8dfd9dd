"""Sandboxes with a weakness: real ones, which die at what a test names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandbox.backends.base import SandboxLost


class Weak:
    """A backend whose sandboxes die when `dies(number, what)` says so: the how many-th it is, and the command or "diff"."""

    def __init__(self, backend: Any, dies: Callable[[int, str], bool], starts: int = 1000) -> None:
        self.backend, self.dies, self.starts, self.started = backend, dies, starts, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    async def start(self, *given: Any, **named: Any) -> Any:
        self.started += 1
        if self.started > self.starts:
            raise SandboxLost("the daemon is gone")
        return WeakSandbox(await self.backend.start(*given, **named), self, self.started)


class WeakSandbox:
    def __init__(self, sandbox: Any, weak: Weak, number: int) -> None:
        self.sandbox, self.weak, self.number = sandbox, weak, number
        self.said: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sandbox, name)

    async def __aenter__(self) -> WeakSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.sandbox.close()

    async def _live(self, what: str) -> None:
        self.said.append(what)
        if self.weak.dies(self.number, what) or (what == "diff" and self.weak.dies(self.number, " ".join(self.said))):
            await self.sandbox.close()
            raise SandboxLost(f"sandbox {self.number}: it died")

    async def exec(self, command: str, **named: Any) -> Any:
        await self._live(command)
        return await self.sandbox.exec(command, **named)

    async def diff(self) -> Any:
        await self._live("diff")
        return await self.sandbox.diff()
