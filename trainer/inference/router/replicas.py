"""The engines behind a router: the known state of each, and when a production engine is borrowed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import httpx
from pydantic import ValidationError

from trainer.inference.client import Connections
from trainer.inference.contract import DeploymentSpec, DeploymentStatus, PartialResponse, ServerHealth
from trainer.inference.discovery import ReplicaSpec
from trainer.inference.errors import Unavailable


@dataclass(frozen=True)
class BorrowPolicy:
    """When to borrow a production engine, and how fast to return it."""

    idle_seconds: float = 10.0
    """Seconds without a production request after which it may be borrowed."""
    reclaim_seconds: float = 2.0
    """Seconds for which borrowed requests may continue once production returns; then they move to other engines."""


PARTIAL_SECONDS = 1.0
"""Maximum seconds for an engine to tell the tokens of a running request."""
AGAIN_SECONDS = 60.0
"""Seconds after which an engine that failed weight verification for a deployment is asked again."""


@dataclass(frozen=True)
class Refusal:
    """An engine that accepted a deployment and failed weight verification."""

    spec: DeploymentSpec
    words: str
    until: float


@dataclass(eq=False)
class Replica:
    spec: ReplicaSpec
    connections: Connections
    admin: httpx.AsyncClient
    health: ServerHealth | None = None
    """Last health report; None while the engine does not answer."""
    error: str = "not asked yet"
    draining: bool = False
    """Removed from the file: running requests finish, no new ones arrive."""
    lent: bool = False
    """A production engine that may be used now."""
    idle_since: float | None = None
    reclaim_at: float | None = None
    running: set[asyncio.Task[httpx.Response]] = field(default_factory=set)
    served: dict[str, DeploymentSpec] = field(default_factory=dict)
    """Deployments that this router created there."""
    refused: dict[str, Refusal] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: ReplicaSpec) -> Replica:
        return cls(spec, Connections(spec.url), httpx.AsyncClient(base_url=spec.url, timeout=30.0, trust_env=False))

    @property
    def wanted(self) -> bool:
        """Whether our deployments belong there."""
        return not self.draining and (not self.spec.production or self.lent)

    @property
    def usable(self) -> bool:
        """Whether the engine computes. A mismatch in one deployment does not affect the others."""
        return self.health is not None and (
            self.health.ok or any(status.proof == "differs" for status in self.health.deployments)
        )

    def serves(self, deployment: str) -> bool:
        """Whether a new request for `deployment` may go there: the engine has passed verification, or verifies before
        it answers."""
        status = self.status(deployment)
        return self.wanted and self.usable and status is not None and status.proof not in ("", "differs")

    def version(self, deployment: str) -> int:
        """Version served at the last look; -1 for none."""
        status = self.status(deployment)
        return -1 if status is None else status.version

    def status(self, deployment: str) -> DeploymentStatus | None:
        """Last reported status of one of our deployments."""
        if self.health is None or deployment not in self.served:
            return None
        return next((status for status in self.health.deployments if status.name == deployment), None)

    def differs(self, deployment: str) -> str:
        """Why answers for a deployment are rejected; empty when there is no reason."""
        if deployment in self.refused:
            return self.refused[deployment].words
        status = self.status(deployment)
        return status.error if status is not None and status.proof == "differs" else ""

    async def partial(self, deployment: str, session: str) -> PartialResponse:
        """Tokens so far of a session's running request; none from an engine that cannot tell. Raises Unavailable."""
        query = {"deployment": deployment, "session": session}
        bounds = httpx.Timeout(PARTIAL_SECONDS, connect=PARTIAL_SECONDS)
        try:
            response = await self.connections.get("/partial", query, bounds)
        except httpx.TransportError as error:
            raise Unavailable(f"{self.spec.url} does not answer ({type(error).__name__})") from error
        if not response.is_success:
            return PartialResponse()
        try:
            return PartialResponse.model_validate_json(response.content)
        except ValidationError as error:
            raise Unavailable(f"{self.spec.url} does not speak the contract: {error.errors()[0]['msg']}") from error

    def saw(
        self,
        health: ServerHealth,
        policy: BorrowPolicy,
        now: float | None = None,
        *,
        asked_with: frozenset[str] | None = None,
    ) -> None:
        """Record a health report; decide whether a production engine is borrowed and when it must be returned.

        `asked_with`: deployments at the time of the request; the report cannot cover later ones.
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
        """Record that the engine does not answer."""
        self.health, self.error = None, error
        self.served, self.refused = {}, {}
        self.lent, self.idle_since = False, None

    def reclaim(self, now: float | None = None) -> int:
        """Cancel our requests on an engine whose reclaim time has passed; return their number."""
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
