"""One deployment on several engines, as one status."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.inference.contract import DeploymentSpec, DeploymentStatus


def merged(spec: DeploymentSpec, parts: Sequence[DeploymentStatus]) -> DeploymentStatus:
    """Sums of what is counted; the fullest engine's cache; the oldest version that any serves, and the last swap of that one."""
    if not parts:
        return DeploymentStatus(name=spec.name, version=-1, digest="", state="loading", follow=spec.follow)
    behind = min(parts, key=lambda part: part.version)
    states = {part.state for part in parts}
    return behind.model_copy(
        update={
            "state": next(state for state in ("serving", "paused", "loading", "failed") if state in states),
            "running": sum(part.running for part in parts),
            "waiting": sum(part.waiting for part in parts),
            "slots": sum(part.slots for part in parts),
            "cache_share": max((part.cache_share for part in parts if part.cache_share is not None), default=None),
            "generated_tokens": sum(part.generated_tokens for part in parts),
            "error": next((part.error for part in parts if part.error), ""),
        }
    )
