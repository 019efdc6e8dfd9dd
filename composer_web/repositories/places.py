"""Local folders of environments and fetched sources, and the allowed origins."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from composer_web.env import env
from sandbox.tasks.environments import EnvironmentStore
from trainer.inference.chat import Endpoint


def store() -> EnvironmentStore:
    return EnvironmentStore(env().data / "environments")


def downloads() -> Path:
    return env().data / "environments" / "downloads"


def git_roots() -> tuple[Path, ...]:
    return tuple(Path(root) for root in map(str.strip, env().git_roots.split(",")) if root)


def installer() -> Endpoint | None:
    """The policy that installs what no recipe does; None where the settings name none."""
    found = env()
    if not found.installer_url or not found.installer_model:
        return None
    return Endpoint(url=found.installer_url, model=found.installer_model, key=SecretStr(found.installer_key))
