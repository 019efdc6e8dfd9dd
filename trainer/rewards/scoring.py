"""The reward of a rollout: every registered part, and their sum."""

from __future__ import annotations

import math

from sandbox.grading.verdict.report import Verdict
from trainer.config import RewardConfig
from trainer.rewards.parts.base import Registered, RewardError, RewardPartFailed, registry
from trainer.rewards.plugins import refresh
from trainer.types import RewardPart, Trajectory


def score(trajectory: Trajectory, config: RewardConfig) -> Trajectory:
    """The trajectory with its reward parts and their sum; unchanged (no reward) after an infrastructure failure.

    A part may wait for a language model: call it where waiting is allowed. Raises RewardError.
    """
    if trajectory.verdict is Verdict.INFRA_ERROR:
        return trajectory.model_copy(update={"reward_parts": (), "reward": None})
    refresh()
    parts_by_name = registry()
    if unknown := sorted(set(config.extra_weights) - set(parts_by_name)):
        raise RewardError(f"there is no reward part {unknown[0]!r}; there are: {', '.join(sorted(parts_by_name))}")
    found = (_one(name, parts_by_name[name], trajectory, config) for name in sorted(parts_by_name))
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
        raise RewardPartFailed(f"reward part {name!r} failed on task {trajectory.task_id}: {error!r}") from error
    if part is None:
        return None
    fixed: dict[str, object] = {"name": name, "version": registered.version}
    part = part.model_copy(update=fixed if weight is None else fixed | {"weight": weight})
    if not math.isfinite(part.value * part.weight):
        raise RewardError(f"reward part {name!r} is {part.value} × {part.weight} on task {trajectory.task_id}")
    return part
