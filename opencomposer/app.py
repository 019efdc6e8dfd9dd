"""The command line as a whole: its nouns, and the exit status of every error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any, TextIO

import typer
from pydantic import ValidationError
from typer.main import get_command

import opencomposer
from opencomposer.client import Client
from opencomposer.commands import (
    access,
    alerts,
    charts,
    drafts,
    evaluations,
    exports,
    labels,
    policies,
    repositories,
    rollouts,
    runs,
    serving,
    studies,
    suites,
    system,
    tasks,
    top,
)
from opencomposer.errors import ApiError, ClientError
from opencomposer.nouns import PROGRAM, Noun
from opencomposer.session import Session

NOUNS: tuple[Noun, ...] = (
    *runs.NOUNS,
    *studies.NOUNS,
    *charts.NOUNS,
    *rollouts.NOUNS,
    *exports.NOUNS,
    *repositories.NOUNS,
    *tasks.NOUNS,
    *suites.NOUNS,
    *drafts.NOUNS,
    *policies.NOUNS,
    *evaluations.NOUNS,
    *labels.NOUNS,
    *serving.NOUNS,
    *alerts.NOUNS,
    *system.NOUNS,
    *access.NOUNS,
)

app = typer.Typer(
    name=PROGRAM,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=f"Example: {PROGRAM} runs create run.yaml --start --follow",
)
top.register(app)
for noun in NOUNS:
    app.add_typer(noun.app, name=noun.name, rich_help_panel=noun.panel)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"{PROGRAM} {opencomposer.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train, measure and serve your own coding agent: everything that the pages of OpenComposer do, from a terminal."""


def main(arguments: Sequence[str] | None = None, *, client: Client | None = None, out: TextIO | None = None) -> int:
    """Run one command line and return its exit status.

    0: done. 1: the API refused, or the work that was followed failed. 2: wrong command line or settings. 3: nothing answers,
    or not in time. 130: interrupted. Errors are one line on standard error, or one JSON object with `--json`.
    """
    session = Session(client=client, out=out)
    try:
        get_command(app).main(args=arguments, prog_name=PROGRAM, obj=session)
    except SystemExit as ended:
        return int(ended.code or 0)
    except ClientError as error:
        return _failed(session, error.status, _described(error))
    except ValidationError as error:
        words = f"the server's answer lacks what this client needs; install the server's version of it ({error})"
        return _failed(session, 3, {"code": "unreachable", "message": words})
    finally:
        session.close()
    return 0


def _described(error: ClientError) -> dict[str, Any]:
    if not isinstance(error, ApiError):
        return {"code": error.code, "message": str(error)}
    message = error.message
    if error.http_status == 401:
        message += "; make a token on the Tokens page and run `opencomposer login`"
    return {"code": error.code, "message": message, "fields": error.fields}


def _failed(session: Session, status: int, data: dict[str, Any]) -> int:
    if session.output.as_json:
        sys.stderr.write(json.dumps({"error": data}) + "\n")
    else:
        more = [f"\n  {name}: {text}" for name, text in data.get("fields", {}).items() if text not in data["message"]]
        sys.stderr.write(f"{PROGRAM}: {data['message']}{''.join(more)}\n")
    return status
