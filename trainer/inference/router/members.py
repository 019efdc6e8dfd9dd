"""The engines behind a router: what is known of each, and when one of others is lent."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import httpx

from trainer.inference.client import Connections
from trainer.inference.contract import DeploymentSpec, DeploymentStatus, ServerHealth
from trainer.inference.members import MemberSpec


@dataclass(frozen=True)
class BorrowPolicy:
    """When a production engine is borrowed, and how fast it is given back."""

    idle_seconds: float = 10.0
    """Others must have left it without a request for so long."""
    reclaim_seconds: float = 2.0
    """After others come back our requests may run on for so long; then they are moved to other engines."""


AGAIN_SECONDS = 60.0
"""After which an engine that refused a deployment for what it computes is asked again."""


@dataclass(frozen=True)
class Refusal:
    """An engine that would take a deployment, and was seen not to compute it."""

    spec: DeploymentSpec
    words: str
    until: float


@dataclass(eq=False)
class Member:
    spec: MemberSpec
    connections: Connections
    admin: httpx.AsyncClient
    health: ServerHealth | None = None
    """The last answer; None while it does not answer."""
    error: str = "not asked yet"
    draining: bool = False
    """It left the file: what runs ends, nothing new comes."""
    lent: bool = False
    """A production engine that may be used now."""
    idle_since: float | None = None
    reclaim_at: float | None = None
    running: set[asyncio.Task[httpx.Response]] = field(default_factory=set)
    served: dict[str, DeploymentSpec] = field(default_factory=dict)
    """What this router deployed there."""
    refused: dict[str, Refusal] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: MemberSpec) -> Member:
        return cls(spec, Connections(spec.url), httpx.AsyncClient(base_url=spec.url, timeout=30.0, trust_env=False))

    @property
    def wanted(self) -> bool:
        """Whether our deployments belong there."""
        return not self.draining and (not self.spec.production or self.lent)

    @property
    def usable(self) -> bool:
        """Whether it computes; that it does so wrongly for one deployment is no matter of the others."""
        return self.health is not None and (
            self.health.ok or any(status.proof == "differs" for status in self.health.deployments)
        )

    def serves(self, deployment: str) -> bool:
        """Whether a new request for `deployment` may go there: only once it was seen to compute what was published, or
        compares it itself before it answers."""
        status = self.status(deployment)
        return self.wanted and self.usable and status is not None and status.proof not in ("", "differs")

    def status(self, deployment: str) -> DeploymentStatus | None:
        """Of a deployment of ours, as it said last."""
        if self.health is None or deployment not in self.served:
            return None
        return next((status for status in self.health.deployments if status.name == deployment), None)

    def differs(self, deployment: str) -> str:
        """Why nothing that it says for a deployment is used; empty while nothing speaks against it."""
        if deployment in self.refused:
            return self.refused[deployment].words
        status = self.status(deployment)
        return status.error if status is not None and status.proof == "differs" else ""

    def saw(
        self,
        health: ServerHealth,
        policy: BorrowPolicy,
        now: float | None = None,
        *,
        asked_with: frozenset[str] | None = None,
    ) -> None:
        """Takes note of an answer; decides whether a production engine is lent, and when it must be free again.

        `asked_with`: what was deployed there when it was asked; what came since it cannot know of.
        """
        now = time.monotonic() if now is None else now
        self.health, self.error = health, health.error
        there = {status.name for status in health.deployments}
        known = frozenset(self.served) if asked_with is None else asked_with
        # It may have been restarted, and have lost them.
        self.served = {name: spec for name, spec in self.served.items() if name in there or name not in known}
        if not self.spec.production:
            return
        theirs = sum(d.running + d.waiting for d in health.deployments if d.name not in self.served)
        if theirs:
            self.idle_since = None
            if self.lent:
                self.lent, self.reclaim_at = False, now + policy.reclaim_seconds
        elif self.idle_since is None:
            self.idle_since = now
        elif now - self.idle_since >= policy.idle_seconds:
            self.lent, self.reclaim_at = True, None

    def lost(self, error: str) -> None:
        """It does not answer."""
        self.health, self.error = None, error
        self.served, self.refused = {}, {}
        self.lent, self.idle_since = False, None

    def reclaim(self, now: float | None = None) -> int:
        """Ends our requests on an engine whose owners have waited long enough; returns how many."""
        now = time.monotonic() if now is None else now
        if self.reclaim_at is None or now < self.reclaim_at:
            return 0
        self.reclaim_at = None
        ended = list(self.running)
        for task in ended:
            task.cancel()
        return len(ended)

    async def aclose(self) -> None:
        await self.connections.aclose()
        await self.admin.aclose()
