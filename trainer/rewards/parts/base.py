"""Rewards are a sum of named, versioned parts, each stored with the rollout. A part is one function in the registry.

    @reward_part("tests", version=1)
    def tests(trajectory, config): ...

A part sees the graded trajectory and the reward settings; it returns a `RewardPart`, or None when the settings turn
it off. Its version is stored beside its value: a part that computes something else has another version. The verdict
`infra_error` is missing data: such a rollout gets no parts and no reward at all.

Operators add parts of their own while a run goes on (`plugins.py`); those have their weight in `RewardConfig.extra`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from trainer.config import RewardConfig
from trainer.types import RewardPart, Trajectory

Part = Callable[[Trajectory, RewardConfig], RewardPart | None]


class RewardError(RuntimeError):
    """A reward part raised, or gave no number. The rollout is not trained on; the message names the part."""

    again: bool = False
    """Whether the part may give a number when it is asked again."""


class RewardPartFailed(RewardError):
    """A part raised while it looked at a rollout; a language model that it asks may answer the next time."""

    again = True


@dataclass(frozen=True, slots=True)
class Registered:
    part: Part
    version: int
    source: str = ""
    """File of an operator's part; empty for those of this package."""


REGISTRY: dict[str, Registered] = {}
_target: ContextVar[dict[str, Registered] | None] = ContextVar("reward registry", default=None)
"""Where parts are registered instead while an operator's file is read; scoring goes on beside that."""


def reward_part(name: str, *, version: int = 1) -> Callable[[Part], Part]:
    """Register a part under a name that is unique and stable (it is stored and shown)."""

    def register(part: Part) -> Part:
        registry = REGISTRY if (target := _target.get()) is None else target
        if name in registry:
            raise ValueError(f"two reward parts are named {name!r}")
        registry[name] = Registered(part, version)
        return part

    return register


def part_names() -> list[str]:
    return sorted(REGISTRY)


def part_versions() -> dict[str, int]:
    """Version of each registered part, by name."""
    return {name: REGISTRY[name].version for name in part_names()}


def registry() -> dict[str, Registered]:
    """Every registered part by name, those of operators included."""
    return REGISTRY
