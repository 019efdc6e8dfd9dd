"""Which cluster serves which version of a run's policy, and how long its last weight sync took."""

from __future__ import annotations

from dataclasses import dataclass

from composer_web.ops import inference
from composer_web.runs.layout import deployment_name
from composer_web.runs.models import Run
from trainer.inference.contract import DeploymentStatus, InferenceError, ServerHealth, ServerStatus, SyncTimings

PATIENCE = 1.5
"""Seconds that the page waits for the inference server."""
PHASES = ("fetch", "decode", "wait", "pause", "apply", "resume")


@dataclass(frozen=True)
class Cluster:
    """A deployment that serves the run's weights."""

    status: DeploymentStatus
    behind: int
    """Versions between what it serves and the newest in the weight store."""

    @property
    def phases(self) -> list[tuple[str, float]]:
        sync = self.status.last_sync
        return [] if sync is None else [(name, getattr(sync, name)) for name in PHASES]


@dataclass(frozen=True)
class Board:
    clusters: list[Cluster]
    servers: list[ServerStatus]
    """Machines behind the inference server that hold this run's weights now."""
    engine: str = ""
    error: str = ""
    """Why nothing is known, and what to do."""
    last: SyncTimings | None = None
    """As the metrics recorded it last: what is left to show once no cluster follows the run any more."""


def board(run: Run) -> Board:
    """As the inference server says now."""
    last = recorded(run)
    try:
        health = inference.health(timeout=PATIENCE)
    except InferenceError as error:
        return Board([], [], error=str(error), last=last)
    name = deployment_name(run)
    found = [
        Cluster(status, max(0, run.policy_version - status.version))
        for status in health.deployments
        if status.name == name
    ]
    servers = [server for server in health.servers if name in server.deployment.split(", ") or not server.ok]
    return Board(found, servers, health.engine, health.error, last)


def recorded(run: Run) -> SyncTimings | None:
    """The last weight sync among the run's metrics."""
    values = run.latest
    if "sync/version" not in values:
        return None
    phases = {name: values[f"sync/{name}"] for name in PHASES if f"sync/{name}" in values}
    return SyncTimings(version=int(values["sync/version"]), bytes=int(values.get("sync/bytes", 0)), **phases)


def engine_metrics(health: ServerHealth, served: DeploymentStatus | None) -> dict[str, float]:
    """The last seconds of the inference server, and of the run's deployment there, as metrics of a step."""
    found = {"idle/rollouts": 1.0 - health.busy_share, "speed/generate_tokens": health.tokens_per_second}
    if served is not None and served.cache_share is not None:
        found["cache/used"] = served.cache_share
    return found | sync_metrics(served)


def sync_metrics(served: DeploymentStatus | None) -> dict[str, float]:
    """The last weight sync of a cluster as metrics of a step; nothing before the first."""
    sync = served.last_sync if served is not None else None
    if sync is None or sync.kind == "none":
        return {}
    return {
        "sync/version": float(sync.version),
        "sync/bytes": float(sync.bytes),
        **{f"sync/{name}": getattr(sync, name) for name in PHASES},
    }
