"""The product that a study talks to: the one of this repository, started if need be, or any that the environment names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from opencomposer import ApiError, Client
from scripts.stack import environment
from scripts.stack.layout import REPOSITORY, Layout
from scripts.stack.supervision import Supervisor
from scripts.study.errors import StudyError
from scripts.study.expert.server import HOST

START_SECONDS = 600.0
TOKEN_SECONDS = 120.0
REQUEST_SECONDS = 300.0
"""Deadline of one request: a suite of hundreds of bundles is posted in one, beside other work."""
SCOPES = ("read", "operate", "review")


def folder() -> Path:
    """Folder of state files, reports and the downloaded model."""
    return Layout.from_environment().data / "study"


def connect() -> Client:
    """A client of the product that OPENCOMPOSER_URL and OPENCOMPOSER_TOKEN name, else of the local one. Raises StudyError."""
    url, token = os.environ.get("OPENCOMPOSER_URL", ""), os.environ.get("OPENCOMPOSER_TOKEN", "")
    if bool(url) != bool(token):
        missing = "OPENCOMPOSER_TOKEN" if url else "OPENCOMPOSER_URL"
        raise StudyError(
            missing, "it is not set, and the other one is", f"Set {missing} too, or neither for a local product."
        )
    if url:
        return Client(url, token, timeout=REQUEST_SECONDS)
    layout = Layout.from_environment()
    if Supervisor.running(layout) is None:
        _start()
    address = environment.url(environment.read(layout))
    path = folder() / "token"
    if path.is_file():
        kept = Client(address, path.read_text().strip(), timeout=REQUEST_SECONDS)
        if _works(kept):
            return kept
        kept.close()
    return Client(address, _token(layout, path), timeout=REQUEST_SECONDS)


def _works(client: Client) -> bool:
    """Whether the product knows the token. Raises ApiError for anything else that it refuses."""
    try:
        client.get("/whoami")
    except ApiError as error:
        if error.http_status == 401:
            return False
        raise
    return True


def _start() -> None:
    """`make up DETACH=1` of a product that may ask the expert's server."""
    variables = {**os.environ, "OPENCOMPOSER_ENDPOINT_HOSTS": os.environ.get("OPENCOMPOSER_ENDPOINT_HOSTS") or HOST}
    _run(
        [sys.executable, "-m", "scripts.stack", "up", "--detach"], variables, START_SECONDS, "product", "See its logs."
    )


def _token(layout: Layout, path: Path) -> str:
    """A token of the administrator in a file that only this user reads."""
    scopes = [word for scope in SCOPES for word in ("--scope", scope)]
    command = [sys.executable, "manage.py", "createtoken", "admin", "--name", "study", *scopes]
    remedy = "Make one on the page Tokens, and set OPENCOMPOSER_URL and OPENCOMPOSER_TOKEN."
    secret = _run(command, environment.by_hand(layout), TOKEN_SECONDS, "token", remedy).strip().splitlines()[-1]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secret)
    return secret


def _run(command: list[str], variables: dict[str, str], seconds: float, field: str, remedy: str) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StudyError(field, f"`{' '.join(command[1:4])}` took more than {seconds:.0f} s", remedy) from error
    if done.returncode:
        raise StudyError(field, f"`{' '.join(command[1:4])}` failed", remedy)
    return done.stdout
