"""Operator settings: variables `OPENCOMPOSER_DOCKER_IMAGE`, `…_RUNTIME` and so on."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

DEFAULT_URL = "unix:///var/run/docker.sock"


def _leases() -> Path:
    return Path(tempfile.gettempdir()) / f"opencomposer-docker-{os.geteuid()}"


class DockerSettings(BaseSettings):
    """How this machine's Docker engine is used."""

    model_config = SettingsConfigDict(env_prefix="OPENCOMPOSER_DOCKER_", extra="ignore")

    image: str = Field(default="", description="Image of every sandbox; empty: this machine's own /usr, read-only")
    python: str = Field(default="python3", description="Python 3.10 or later in that image, by name or path")
    runtime: str = Field(
        default="", description="Runtime of the engine for sandboxes, such as runsc; empty: its default"
    )
    url: str = Field(default="", description="Socket of the engine; empty: DOCKER_HOST, else " + DEFAULT_URL)
    seccomp: Path | None = Field(
        default=None, description="Profile (JSON) in place of the engine's; ours applies anyway"
    )
    leases: Path = Field(default_factory=_leases, description="Folder where processes show that they live")

    def socket_url(self) -> str:
        return self.url or os.environ.get("DOCKER_HOST") or DEFAULT_URL
