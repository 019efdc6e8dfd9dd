"""Where the services are: read from the environment (prefix `OPENCOMPOSER_`), else from `<data>/run/env`.

The supervisor writes `<data>/run/env` when it starts the embedded Postgres and Valkey, so that a command
typed in another shell finds the same services without any variable set.
"""

from __future__ import annotations

import os
import secrets
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

REPOSITORY = Path(__file__).resolve().parent.parent
DEFAULT_DATA = REPOSITORY / ".data"


class Env(BaseSettings):
    """Settings of one process. Precedence: variables, then the supervisor's file, then these defaults."""

    model_config = SettingsConfigDict(env_prefix="OPENCOMPOSER_", extra="ignore")

    data: Path = Field(default=DEFAULT_DATA, description="Root of everything the product stores besides Postgres")
    database_url: str = Field(
        default="postgresql://opencomposer@127.0.0.1:5432/opencomposer",
        description="postgresql://user:password@host:port/name; a socket folder may be given as ?host=",
    )
    redis_url: str = Field(default="redis://127.0.0.1:6379/0", description="Redis or Valkey: broker and live hints")
    inference_url: str = Field(default="http://127.0.0.1:8100", description="Inference server (embedded or vLLM)")
    secret_key: str = Field(default="", description="Signing key; empty: one is made and kept in <data>/run/secret_key")
    host: str = Field(default="127.0.0.1", description="Address that the web server listens on")
    port: int = Field(default=8000, ge=1, le=65535)
    public_hosts: str = Field(default="", description="More host names that may be asked for, separated by commas")
    https: bool = Field(default=False, description="Served behind TLS: secure cookies and HSTS")
    debug: bool = False
    database_pool: int = Field(default=8, ge=1, description="Most database connections of one process")
    episodes: int = Field(default=4, ge=1, description="Groups that one rollout worker runs at a time")
    trainer_lease_seconds: float = Field(
        default=10.0, gt=1, description="A silent trainer loses its run after this long"
    )
    group_lease_seconds: float = Field(
        default=20.0, gt=1, description="A silent rollout worker loses its group after this long"
    )

    def secret(self) -> str:
        """The signing key, made once (mode 0600) when none is configured."""
        if self.secret_key:
            return self.secret_key
        path = self.data / "run" / "secret_key"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return path.read_text().strip()
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(48))
        return path.read_text().strip()


def database_settings(url: str) -> dict[str, Any]:
    """Django's DATABASES entry for a postgresql:// URL. Raises ValueError that shows the expected form."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres") or not parts.path.strip("/"):
        raise ValueError("OPENCOMPOSER_DATABASE_URL must look like postgresql://user:password@host:5432/name")
    query = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.strip("/")),
        "USER": unquote(parts.username or "") or query.get("user", ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": query.get("host") or unquote(parts.hostname or ""),
        "PORT": str(parts.port or query.get("port") or ""),
    }


@lru_cache(maxsize=1)
def env() -> Env:
    """The settings of this process, read once."""
    data = Path(os.environ.get("OPENCOMPOSER_DATA") or DEFAULT_DATA)
    return Env(_env_file=data / "run" / "env")  # type: ignore[call-arg]
