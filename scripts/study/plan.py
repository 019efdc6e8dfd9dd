"""Sizes of a study. `smoke` shows that every step works; `full` is large enough for intervals that mean something."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Size = Literal["smoke", "full"]
TEMPERATURE = 0.8


class Package(BaseModel):
    """A real package. Without a version it is one that the product's lock pins, else a source distribution."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    version: str = ""


class Evaluated(BaseModel):
    """How a suite is evaluated."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tasks: int = Field(gt=0)
    samples: int = Field(gt=0)


class Plan(BaseModel):
    """Everything that decides what a study does, apart from its seed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: Size
    train_packages: tuple[Package, ...]
    """Packages of which three quarters of the functions give training tasks, the others held-out tasks."""
    new_packages: tuple[Package, ...]
    """Packages that no stage trains on."""
    tasks_per_package: int = Field(gt=0)
    demonstrations: int = Field(gt=0)
    """Tasks of the procedural family that the expert demonstrates, besides all training tasks of packages."""
    accuracy: float = Field(ge=0, le=1)
    """Share of the expert's attempts that are the intended fix. Below 1, RL has something left to learn."""
    sft_steps: int = Field(gt=0)
    sft_batch_tokens: int = Field(gt=0)
    sft_learning_rate: float = Field(gt=0)
    prompts: int = Field(gt=0)
    """Tasks of the procedural family that RL may use, besides all training tasks of packages."""
    rl_steps: int = Field(gt=0)
    rl_groups: int = Field(gt=0)
    group_size: int = Field(ge=2)
    rl_learning_rate: float = Field(gt=0)
    held_out: Evaluated
    """On the procedural family."""
    packages: Evaluated
    """On each of the two suites of real packages; `tasks` is the most that it may have."""
    context_tokens: int = Field(ge=1024)
    turn_tokens: int = Field(ge=64)
    turns: int = Field(gt=0)
    gate: float = Field(ge=0, le=1)
    """RL begins only if SFT leaves this pass@1 on the held-out procedural tasks: below it, most groups have no signal."""
    wait_hours: float = Field(gt=0)
    """Deadline of each single wait."""


INFLECTION, PARSE, TOOLZ, CACHETOOLS = (Package(name=name) for name in ("inflection", "parse", "toolz", "cachetools"))
ISODATE = Package(name="isodate", version="0.7.2")
ITSDANGEROUS = Package(name="itsdangerous", version="2.2.0")

PLANS: dict[Size, Plan] = {
    "smoke": Plan(
        size="smoke",
        train_packages=(INFLECTION, PARSE),
        new_packages=(CACHETOOLS, ISODATE),
        tasks_per_package=1,
        demonstrations=32,
        accuracy=0.5,
        sft_steps=16,
        sft_batch_tokens=2048,
        sft_learning_rate=1e-4,
        prompts=8,
        rl_steps=2,
        rl_groups=2,
        group_size=4,
        rl_learning_rate=1e-5,
        held_out=Evaluated(tasks=8, samples=2),
        packages=Evaluated(tasks=3, samples=2),
        context_tokens=2048,
        turn_tokens=128,
        turns=8,
        gate=0.0,
        wait_hours=1.0,
    ),
    "full": Plan(
        size="full",
        train_packages=(INFLECTION, PARSE, TOOLZ, ITSDANGEROUS),
        new_packages=(CACHETOOLS, ISODATE),
        tasks_per_package=6,
        demonstrations=240,
        accuracy=0.25,
        sft_steps=80,
        sft_batch_tokens=3072,
        sft_learning_rate=1e-4,
        prompts=240,
        rl_steps=40,
        rl_groups=6,
        group_size=8,
        rl_learning_rate=3e-5,
        held_out=Evaluated(tasks=48, samples=4),
        packages=Evaluated(tasks=24, samples=2),
        context_tokens=4096,
        turn_tokens=256,
        turns=12,
        gate=0.05,
        wait_hours=12.0,
    ),
}
