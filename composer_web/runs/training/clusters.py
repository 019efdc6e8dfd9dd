"""Served policy version, last weight sync and engine counters of each cluster that serves a run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from composer_web.core import inference
from composer_web.runs.models import Run
from composer_web.runs.paths import deployment_name
from trainer.inference.contract import (
    DeploymentStatus,
    EngineStatus,
    InferenceError,
    ServerHealth,
    ServerStatus,
    SyncTimings,
)

PATIENCE = 1.5
"""Seconds that the page waits for the inference server."""
PHASES = ("fetch", "decode", "wait", "pause", "apply", "resume")
"""Phases of a weight sync, as in `SyncTimings`. The last two are parts of the pause."""
HEADS = (*PHASES[:4], "apply", "resume")


@dataclass(frozen=True)
class Cluster:
    """Engines in one location that serve the run's weights. The slowest engine determines the cluster's version."""

    name: str
    """Empty if no router names the cluster."""
    version: int
    behind: int
    """Number of versions between the served one and the newest in the weight store."""
    engines: int
    last_sync: SyncTimings | None
    """Timings of the slowest engine."""

    @property
    def phases(self) -> list[float]:
        return [getattr(self.last_sync, name) for name in PHASES] if self.last_sync else []


@dataclass(frozen=True)
class Board:
    status: DeploymentStatus | None
    """Status of all clusters together. None if nothing serves the run."""
    clusters: list[Cluster]
    servers: list[ServerStatus]
    """Replicas behind the inference server that hold this run's weights, do not answer, or are leaving."""
    engine: str = ""
    error: str = ""
    """Reason why the status is unknown, or a problem with the list of servers, and its remedy."""
    last: SyncTimings | None = None
    """Last sync recorded in the metrics. Shown once no cluster follows the run any more."""
    heads: Sequence[str] = HEADS


def board(run: Run) -> Board:
    """Current status from the inference server."""
    last = recorded(run)
    try:
        health = inference.health(timeout=PATIENCE)
    except InferenceError as error:
        return Board(None, [], [], error=str(error), last=last)
    name = deployment_name(run)
    status = next((one for one in health.deployments if one.name == name), None)
    servers = [
        server for server in health.servers if name in server.deployment.split(", ") or server.leaving or not server.ok
    ]
    found = clusters(status, run.policy_version) if status else []
    return Board(status, found, servers, health.engine, health.error, last)


def clusters(status: DeploymentStatus, newest: int) -> list[Cluster]:
    """Clusters sorted by name. `newest` is the newest version in the weight store."""
    members: dict[str, list[EngineStatus]] = {}
    for engine in status.by_engine:
        members.setdefault(engine.cluster, []).append(engine)
    found = []
    for name, engines in sorted(members.items()):
        sound = [engine for engine in engines if engine.proof != "differs"]  # what is left out holds nobody up
        version = min(engine.version for engine in sound or engines)
        syncs = [engine.last_sync for engine in sound if engine.last_sync is not None]
        found.append(
            Cluster(name, version, max(0, newest - version), len(sound), max(syncs, key=_seconds, default=None))
        )
    return found


def _seconds(sync: SyncTimings) -> tuple[int, float]:
    """Sort key: engines that have not reached a version yet count as slower than those that have."""
    return -sync.version, sync.seconds


def recorded(run: Run) -> SyncTimings | None:
    """Last weight sync among the run's metrics."""
    values = run.latest
    if "sync/version" not in values:
        return None
    phases = {name: values[f"sync/{name}"] for name in PHASES if f"sync/{name}" in values}
    return SyncTimings(version=int(values["sync/version"]), bytes=int(values.get("sync/bytes", 0)), **phases)


class EngineMeter:
    """Status of the inference server as metrics of a step. Counters are reported as the change since the last step;
    the first step has those of the server's last seconds, or none."""

    def __init__(self) -> None:
        self._counted: dict[str, EngineStatus] = {}
        """Counters at the last step, by engine address."""
        self._work: tuple[float, ServerHealth] | None = None
        """When the last step was told, and the server's counters then."""

    def metrics(self, health: ServerHealth, served: DeploymentStatus | None) -> dict[str, float]:
        """Metrics of the server and of the run's deployment."""
        found = self._load(health)
        if served is None:
            return found
        shares = [engine.cache_share for engine in served.by_engine if engine.cache_share is not None]
        if shares:
            found["cache/used"] = max(shares)
        if len(shares) > 1:
            found["cache/used_min"] = min(shares)
        return found | self._since(served.by_engine) | sync_metrics(served)

    def _load(self, health: ServerHealth) -> dict[str, float]:
        now, before = time.monotonic(), self._work
        self._work = (now, health)
        idle, speed = 1.0 - health.busy_share, health.tokens_per_second
        # A server that began anew, or a router with other engines behind it, counts from another number.
        if before is not None and now > before[0] and health.busy_seconds >= before[1].busy_seconds:
            seconds = now - before[0]
            idle = 1.0 - min(1.0, (health.busy_seconds - before[1].busy_seconds) / seconds)
            speed = max(0, health.sampled_tokens - before[1].sampled_tokens) / seconds
        return {"idle/rollouts": idle, "speed/generate_tokens": speed}

    def _since(self, engines: Sequence[EngineStatus]) -> dict[str, float]:
        before, self._counted = self._counted, {engine.url: engine for engine in engines}
        changes = [_change(before[engine.url], engine) for engine in engines if engine.url in before]
        if not changes:
            return {}
        preempted = [float(change.preemptions) for change in changes]
        found = {"cache/preemptions": sum(preempted)}
        if read := sum(change.prompt_tokens for change in changes):
            found["cache/prefix_hits"] = sum(change.reused_tokens for change in changes) / read
        if guessed := sum(change.draft_tokens for change in changes):
            found["speculation/accepted"] = sum(change.accepted_tokens for change in changes) / guessed
        if len(changes) > 1:
            shares = [change.reused_tokens / change.prompt_tokens for change in changes if change.prompt_tokens]
            found |= {"cache/preemptions_min": min(preempted), "cache/preemptions_max": max(preempted)}
            if shares:
                found |= {"cache/prefix_hits_min": min(shares), "cache/prefix_hits_max": max(shares)}
        return found


def _change(before: EngineStatus, now: EngineStatus) -> EngineStatus:
    """Change of an engine's counters. A restarted engine counts from 0."""
    if now.prompt_tokens < before.prompt_tokens or now.preemptions < before.preemptions:
        return now
    counts = ("prompt_tokens", "reused_tokens", "preemptions", "draft_tokens", "accepted_tokens")
    return now.model_copy(update={name: getattr(now, name) - getattr(before, name) for name in counts})


def sync_metrics(served: DeploymentStatus | None) -> dict[str, float]:
    """Last weight sync as metrics of a step, also per cluster if there are several. Empty before the first sync."""
    if served is None:
        return {}
    found = _of_sync(served.last_sync, "")
    several = clusters(served, served.version)
    if len(several) > 1:
        for cluster in several:
            found |= _of_sync(cluster.last_sync, f"/{cluster.name}")
    return found


def _of_sync(sync: SyncTimings | None, suffix: str) -> dict[str, float]:
    if sync is None or sync.kind == "none":
        return {}
    return {
        f"sync/version{suffix}": float(sync.version),
        f"sync/bytes{suffix}": float(sync.bytes),
        **{f"sync/{name}{suffix}": getattr(sync, name) for name in PHASES},
    }
