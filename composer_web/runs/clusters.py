"""Which cluster serves which version of a run's policy, how long its last weight sync took, and what its engines count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from composer_web.ops import inference
from composer_web.runs.models import Run
from composer_web.runs.whereabouts import deployment_name
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
"""Of a weight sync, as `SyncTimings` has them: the last two are parts of the pause."""
HEADS = (*PHASES[:4], "of it apply", "of it resume")


@dataclass(frozen=True)
class Cluster:
    """Engines that serve the run's weights and lie together; they are as far as the last of them."""

    name: str
    """Empty where no router names any."""
    version: int
    behind: int
    """Versions between what it serves and the newest in the weight store."""
    engines: int
    last_sync: SyncTimings | None
    """Of its slowest engine."""

    @property
    def phases(self) -> list[float]:
        return [getattr(self.last_sync, name) for name in PHASES] if self.last_sync else []


@dataclass(frozen=True)
class Board:
    status: DeploymentStatus | None
    """Of all clusters together; None when nothing serves the run."""
    clusters: list[Cluster]
    servers: list[ServerStatus]
    """Machines behind the inference server that hold this run's weights now, do not answer, or leave."""
    engine: str = ""
    error: str = ""
    """Why nothing is known, or what is wrong with the list of servers, and what to do."""
    last: SyncTimings | None = None
    """As the metrics recorded it last: what is left to show once no cluster follows the run any more."""
    heads: Sequence[str] = HEADS


def board(run: Run) -> Board:
    """As the inference server says now."""
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
    """By name. `newest` is the newest version in the weight store."""
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
    """An engine that has not come to a version yet is slower than those that have."""
    return -sync.version, sync.seconds


def recorded(run: Run) -> SyncTimings | None:
    """The last weight sync among the run's metrics."""
    values = run.latest
    if "sync/version" not in values:
        return None
    phases = {name: values[f"sync/{name}"] for name in PHASES if f"sync/{name}" in values}
    return SyncTimings(version=int(values["sync/version"]), bytes=int(values.get("sync/bytes", 0)), **phases)


class EngineMeter:
    """What the inference server says, as metrics of a step. What it counts is told as the change since the last step, so
    nothing at the first."""

    def __init__(self) -> None:
        self._counted: dict[str, EngineStatus] = {}
        """By address, as of the last step."""

    def metrics(self, health: ServerHealth, served: DeploymentStatus | None) -> dict[str, float]:
        """The last seconds of the server, and of the run's deployment there."""
        found = {"idle/rollouts": 1.0 - health.busy_share, "speed/generate_tokens": health.tokens_per_second}
        if served is None:
            return found
        shares = [engine.cache_share for engine in served.by_engine if engine.cache_share is not None]
        if shares:
            found["cache/used"] = max(shares)
        if len(shares) > 1:
            found["cache/used_min"] = min(shares)
        return found | self._since(served.by_engine) | sync_metrics(served)

    def _since(self, engines: Sequence[EngineStatus]) -> dict[str, float]:
        before, self._counted = self._counted, {engine.url: engine for engine in engines}
        changes = [_change(before[engine.url], engine) for engine in engines if engine.url in before]
        if not changes:
            return {}
        preempted = [float(change.preemptions) for change in changes]
        found = {"cache/preemptions": sum(preempted)}
        if read := sum(change.prompt_tokens for change in changes):
            found["cache/prefix_hits"] = sum(change.reused_tokens for change in changes) / read
        if guessed := sum(change.guessed_tokens for change in changes):
            found["speculation/accepted"] = sum(change.accepted_tokens for change in changes) / guessed
        if len(changes) > 1:
            shares = [change.reused_tokens / change.prompt_tokens for change in changes if change.prompt_tokens]
            found |= {"cache/preemptions_min": min(preempted), "cache/preemptions_max": max(preempted)}
            if shares:
                found |= {"cache/prefix_hits_min": min(shares), "cache/prefix_hits_max": max(shares)}
        return found


def _change(before: EngineStatus, now: EngineStatus) -> EngineStatus:
    """What it counted since; an engine that began anew counts from 0."""
    if now.prompt_tokens < before.prompt_tokens or now.preemptions < before.preemptions:
        return now
    counts = ("prompt_tokens", "reused_tokens", "preemptions", "guessed_tokens", "accepted_tokens")
    return now.model_copy(update={name: getattr(now, name) - getattr(before, name) for name in counts})


def sync_metrics(served: DeploymentStatus | None) -> dict[str, float]:
    """The last weight sync as metrics of a step, and that of each cluster where there are several; nothing before the
    first."""
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
