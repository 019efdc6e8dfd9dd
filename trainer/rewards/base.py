"""Rewards are a sum of named, versioned parts, each stored with the rollout. A part is one function in the registry.

    @reward_part("tests", version=1)
    def tests(trajectory, config): ...

A part sees the graded trajectory and the reward settings; it returns a `RewardPart`, or None when the settings turn
it off. Its version is stored beside its value: a part that computes something else has another version. The verdict
`infra_error` is missing data: such a rollout gets no parts and no reward at all.

Operators add parts of their own while a run goes on (`plugins.py`); those have their weight in `RewardConfig.extra`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from sandbox.grading.report import Verdict
from trainer.config import RewardConfig
from trainer.rollouts.types import RewardPart, Trajectory

Part = Callable[[Trajectory, RewardConfig], RewardPart | None]


class RewardError(RuntimeError):
    """A reward part raised, or gave no number. The rollout is not trained on; the message names the part."""


@dataclass(frozen=True, slots=True)
class Registered:
    part: Part
    version: int
    source: str = ""
    """File of an operator's part; empty for those of this package."""


_REGISTRY: dict[str, Registered] = {}
_target: ContextVar[dict[str, Registered] | None] = ContextVar("reward registry", default=None)
"""Where parts are registered instead while an operator's file is read; scoring goes on beside that."""


def reward_part(name: str, *, version: int = 1) -> Callable[[Part], Part]:
    """Register a part under a name that is unique and stable (it is stored and shown)."""

    def register(part: Part) -> Part:
        registry = _REGISTRY if (target := _target.get()) is None else target
        if name in registry:
            raise ValueError(f"two reward parts are named {name!r}")
        registry[name] = Registered(part, version)
        return part

    return register


def part_names() -> list[str]:
    return sorted(_REGISTRY)


def part_versions() -> dict[str, int]:
    """Version of each registered part, by name."""
    return {name: _REGISTRY[name].version for name in part_names()}


def score(trajectory: Trajectory, config: RewardConfig) -> Trajectory:
    """The trajectory with its reward parts and their sum; unchanged (no reward) after an infrastructure failure.

    A part may wait for a language model: call it where waiting is allowed. Raises RewardError.
    """
    if trajectory.verdict is Verdict.INFRA_ERROR:
        return trajectory.model_copy(update={"reward_parts": (), "reward": None})
    from trainer.rewards.plugins import refresh

    refresh()
    registry = _REGISTRY
    if unknown := sorted(set(config.extra_weights) - set(registry)):
        raise RewardError(f"there is no reward part {unknown[0]!r}; there are: {', '.join(sorted(registry))}")
    found = (_one(name, registry[name], trajectory, config) for name in sorted(registry))
    parts = [part for part in found if part is not None]
    return trajectory.model_copy(
        update={"reward_parts": tuple(parts), "reward": sum(part.value * part.weight for part in parts)}
    )


def _one(name: str, registered: Registered, trajectory: Trajectory, config: RewardConfig) -> RewardPart | None:
    weight = config.extra_weights.get(name)
    if registered.source and not weight:
        return None
    try:
        part = registered.part(trajectory, config)
    except Exception as error:
        raise RewardError(f"reward part {name!r} failed on task {trajectory.task_id}: {error!r}") from error
    if part is None:
        return None
    fixed: dict[str, object] = {"name": name, "version": registered.version}
    part = part.model_copy(update=fixed if weight is None else fixed | {"weight": weight})
    if not math.isfinite(part.value * part.weight):
        raise RewardError(f"reward part {name!r} is {part.value} × {part.weight} on task {trajectory.task_id}")
    return part
