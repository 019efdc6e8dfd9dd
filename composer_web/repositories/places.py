"""Where this machine keeps environments and fetched sources, and what it may fetch from."""

from __future__ import annotations

from pathlib import Path

from composer_web.env import env
from sandbox.tasks.environments import EnvironmentStore


def store() -> EnvironmentStore:
    return EnvironmentStore(env().data / "environments")


def downloads() -> Path:
    return env().data / "environments" / "downloads"


def git_hosts() -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, env().git_hosts.split(","))))


def git_roots() -> tuple[Path, ...]:
    return tuple(Path(root) for root in map(str.strip, env().git_roots.split(",")) if root)
