"""Merges the status of one deployment over several engines."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.inference.contract import DeploymentSpec, DeploymentStatus, EngineStatus
from trainer.inference.discovery import ReplicaSpec


def merged(
    spec: DeploymentSpec,
    parts: Mapping[ReplicaSpec, DeploymentStatus],
    refused: Mapping[ReplicaSpec, str] | None = None,
) -> DeploymentStatus:
    """Merge counters by sum, cache utilisation by maximum, and version by minimum, with that engine's last swap. Keeps
    each engine's own status, and the reason of an engine that failed verification (`refused`) and has none.
    """
    wrong = [
        EngineStatus(url=replica.url, cluster=replica.cluster, version=-1, proof="differs", error=words)
        for replica, words in (refused or {}).items()
    ]
    if not parts:
        state, proof = ("failed", "differs") if wrong else ("loading", "")
        return DeploymentStatus.model_validate(
            {"name": spec.name, "version": -1, "digest": "", "state": state, "follow": spec.follow, "proof": proof}
            | {"engines": wrong, "error": next((engine.error for engine in wrong), "")}
        )
    statuses = list(parts.values())
    sound = [part for part in statuses if part.proof != "differs"]
    behind = min(sound or statuses, key=lambda part: part.version)
    states = {part.state for part in statuses}
    return behind.model_copy(
        update={
            "state": next(state for state in ("serving", "paused", "loading", "failed") if state in states),
            "running": sum(part.running for part in statuses),
            "waiting": sum(part.waiting for part in statuses),
            "slots": sum(part.slots for part in statuses),
            "cache_share": max((part.cache_share for part in statuses if part.cache_share is not None), default=None),
            "generated_tokens": sum(part.generated_tokens for part in statuses),
            "prompt_tokens": sum(part.prompt_tokens for part in statuses),
            "reused_tokens": sum(part.reused_tokens for part in statuses),
            "draft_tokens": sum(part.draft_tokens for part in statuses),
            "accepted_tokens": sum(part.accepted_tokens for part in statuses),
            "preemptions": sum(part.preemptions for part in statuses),
            "engines": [*(engine for replica, part in parts.items() for engine in _engines(replica, part)), *wrong],
            "error": next(
                (words for words in [*(part.error for part in statuses), *(e.error for e in wrong)] if words), ""
            ),
        }
    )


def _engines(replica: ReplicaSpec, part: DeploymentStatus) -> list[EngineStatus]:
    """A replica may itself be a router: its engines keep their addresses and belong to the replica's cluster."""
    return [
        engine.model_copy(update={"url": engine.url or replica.url, "cluster": replica.cluster})
        for engine in part.by_engine
    ]
