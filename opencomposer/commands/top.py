"""`login`, `whoami`, `status` and `api`: commands without a noun."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from opencomposer.client import Client
from opencomposer.errors import Failed, SettingsError, UsageError
from opencomposer.files import assignment, read_json, secret
from opencomposer.nouns import PROGRAM, Command, adapted
from opencomposer.session import Session
from opencomposer.settings import DEFAULT_URL, Settings, save_settings

CHECK_COLUMNS = ("name", "ok", "message", "seconds")
Method = Literal["get", "post", "put", "patch", "delete"]


def login(session: Session, url: Annotated[str, typer.Argument(help="Address of the product.")] = DEFAULT_URL) -> None:
    """Keep an address and a token for this user. The token is asked for, or read from standard input, and tried once."""
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{url!r}: an address begins with http:// or https://")
    token = secret("Token")
    if not token.isascii() or not token.isprintable() or not token:
        raise SettingsError("a token is one line of printable characters: copy it from the Tokens page")
    with Client(url, token) as client:
        found = client.get("/whoami")
    path = save_settings(Settings(url=url, token=token, project=session.project))
    data = {"file": str(path), "url": url, "username": found["username"]}
    session.output.said(f"logged in to {url} as {found['username']}; kept in {path}", data)


def whoami(session: Session) -> None:
    """Show whose token this is, what it may do, and until when."""
    session.output.one(session.api.get("/whoami"))


def status(session: Session) -> None:
    """Show whether every part of the product works. Exit status 1 when one does not."""
    found = session.api.get("/health")
    if session.output.as_json:
        session.output.one(found)
    else:
        session.output.line(session.api.url)
        session.output.rows(found["checks"], CHECK_COLUMNS)
    if not found["ok"]:
        broken = ", ".join(one["name"] for one in found["checks"] if not one["ok"])
        raise Failed(f"not working: {broken}; docs/guides/operations.md says what to do about each")


def api(
    session: Session,
    method: Method,
    path: Annotated[str, typer.Argument(help="As /api/v1/docs has it, from /api/v1 on: /findings")],
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="name=value", help="Query parameter of a GET, or field of the body."),
    ] = None,
    body: Annotated[str | None, typer.Option(help="JSON file with the body; - is standard input.")] = None,
) -> None:
    """Send any request of the API, for what has no command of its own. The answer is JSON."""
    given = dict(assignment(word) for word in values or [])
    address = "/" + path.removeprefix("/api/v1").lstrip("/")
    address = address.replace("{", "{{").replace("}", "}}")
    if method == "get" or body is not None:
        sent = None if body is None else read_json(body)
        found = session.api.request(method.upper(), address, params=given, body=sent)
    else:
        found = session.api.request(method.upper(), address, body=given or None)
    session.output.json(found)


EXAMPLES: dict[str, tuple[Command, str]] = {
    "login": (login, "login http://127.0.0.1:8800"),
    "whoami": (whoami, "whoami --json"),
    "status": (status, "status"),
    "api": (api, "api get /curation/facets --set suite=train"),
}


def register(app: typer.Typer) -> None:
    for name, (function, example) in EXAMPLES.items():
        app.command(name, epilog=f"Example: {PROGRAM} {example}", rich_help_panel="Connection")(adapted(function))
