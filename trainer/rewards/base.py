"""Rewards are a sum of named parts, each stored with the rollout. A part is one function in the registry.

    @reward_part("tests")
    def tests(trajectory, config): ...

A part sees the graded trajectory and the reward settings; it returns a `RewardPart`, or None when the settings turn
it off. The verdict `infra_error` is missing data: such a rollout gets no parts and no reward at all.
"""

from __future__ import annotations

from collections.abc import Callable

from sandbox.grading.report import Verdict
from trainer.config import RewardConfig
from trainer.rollouts.types import RewardPart, Trajectory

Part = Callable[[Trajectory, RewardConfig], RewardPart | None]

_REGISTRY: dict[str, Part] = {}


class RewardError(RuntimeError):
    """A reward part raised. The rollout is not trained on; the message names the part."""


def reward_part(name: str) -> Callable[[Part], Part]:
    """Register a part under a name that is unique and stable (it is stored and shown)."""

    def register(part: Part) -> Part:
        if _REGISTRY.setdefault(name, part) is not part:
            raise ValueError(f"two reward parts are named {name!r}")
        return part

    return register


def part_names() -> list[str]:
    return sorted(_REGISTRY)


def score(trajectory: Trajectory, config: RewardConfig) -> Trajectory:
    """The trajectory with its reward parts and their sum; unchanged (no reward) after an infrastructure failure."""
    if trajectory.verdict is Verdict.INFRA_ERROR:
        return trajectory.model_copy(update={"reward_parts": (), "reward": None})
    parts: list[RewardPart] = []
    for name in part_names():
        try:
            part = _REGISTRY[name](trajectory, config)
        except Exception as error:
            raise RewardError(f"reward part {name!r} failed on task {trajectory.task_id}: {error!r}") from error
        if part is not None:
            parts.append(part)
    return trajectory.model_copy(
        update={"reward_parts": tuple(parts), "reward": sum(part.value * part.weight for part in parts)}
    )
