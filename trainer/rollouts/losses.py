"""Whose doing the loss of an episode's sandbox is.

A machine that fails takes sandboxes at random. A policy that found out how to end its own would have its losing rollouts played
again, or their groups dropped, so a sandbox that is lost after the policy's first call is tried once more: the same calls in a
fresh one. Lost again, there or in the next attempt, while a sandbox without these calls holds, it is the policy's failure.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from sandbox.backends.base import (
    Backend,
    EnvSpec,
    Limits,
    Sandbox,
    SandboxError,
    SandboxExpired,
    SandboxLost,
    Snapshot,
    released,
)
from sandbox.harness.errors import HarnessFailure
from sandbox.harness.session import Session
from sandbox.harness.types import ToolCall

log = logging.getLogger(__name__)

CHECK_SECONDS = 60.0
"""Of the sandbox that shows whether this machine holds one without the policy's calls."""


@dataclass(slots=True)
class Losses:
    """Sandboxes that the attempts of one rollout lost after the policy's first call."""

    count: int = 0


@dataclass(slots=True)
class Scene:
    """Where an episode is played: what starts its sandbox, and the session that runs the policy's calls there."""

    backend: Backend
    losses: Losses = field(default_factory=Losses)
    session: Session | None = None
    past: tuple[ToolCall, ...] = ()
    """Calls of turns before the snapshot that the sandbox went on from."""
    _start: tuple[EnvSpec, Limits, Snapshot | None] | None = None

    async def start(self, environment: EnvSpec, limits: Limits, snapshot: Snapshot | None) -> Sandbox:
        """Raises as `Backend.start`."""
        self._start = (environment, limits, snapshot)
        return await self.backend.start(environment, limits=limits, snapshot=snapshot)

    async def broken_by_policy(self, error: BaseException, seconds: float) -> bool:
        """Whether the policy's calls lost the sandbox that `error` tells of; they get `seconds` to do it again."""
        lost = error.cause if isinstance(error, HarnessFailure) else error
        if not isinstance(lost, SandboxLost) or isinstance(lost, SandboxExpired):
            return False
        if self.session is None or not self.session.asked:
            return False
        self.losses.count += 1
        try:
            async with asyncio.timeout(seconds):
                again = self.losses.count > 1 or await self._lost_again(self.session)
            async with asyncio.timeout(CHECK_SECONDS):
                return again and await self._holds()
        except (SandboxError, TimeoutError, OSError):  # no sandbox, or no end of it: nothing is known
            log.warning("whether the policy's calls lost a sandbox is not known", exc_info=True)
            return False

    async def _lost_again(self, session: Session) -> bool:
        """Whether the calls lose a fresh sandbox too. Raises what starting one raises."""
        assert self._start is not None
        environment, limits, snapshot = self._start
        fresh = await self.backend.start(environment, limits=limits, snapshot=snapshot)
        async with released(fresh) as sandbox:
            replay = Session(sandbox, session.profile)
            replay.recall(self.past)
            try:
                for calls in session.asked:
                    await replay.run(calls)
                await sandbox.diff()
            except HarnessFailure as error:
                return isinstance(error.cause, SandboxLost)
            except SandboxLost:
                return True
        return False

    async def _holds(self) -> bool:
        assert self._start is not None
        environment, limits, snapshot = self._start
        fresh = await self.backend.start(environment, limits=limits, snapshot=snapshot)
        async with released(fresh) as sandbox:
            await sandbox.exec("true")
            await sandbox.diff()
        return True
