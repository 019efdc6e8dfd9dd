"""From a repository to an environment that tasks run in."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from opencomposer.errors import UsageError
from opencomposer.files import readable, secret
from opencomposer.nouns import PATIENCE, Follow, Noun, Timeout, fields
from opencomposer.session import Session
from opencomposer.waiting import wait_build

PANEL = "Tasks"
ENVIRONMENT_COLUMNS = ("name", "state", "source", "task_count", "failure")
REPOSITORY_COLUMNS = ("name", "state", "kind", "location", "pin", "licence")

repositories = Noun("repositories", "Sources of environments.", panel=PANEL)
repositories.lists("/environments/repositories", REPOSITORY_COLUMNS, "List repositories, newest first.")
repositories.gets("/environments/{name}", "Show the environment of a repository.", example="shop")


@repositories.command("create", example="git https://example.org/shop.git --follow")
def create_repository(
    session: Session,
    kind: Literal["git", "path", "sdist", "archive"],
    location: Annotated[
        str, typer.Argument(help="Git address, folder of the server, package, or .tar.gz or .zip to upload.")
    ],
    name: str | None = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit.")] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Ask for an access token, or read it from standard input.")
    ] = False,
    follow: Follow = False,
    timeout: Timeout = PATIENCE,
) -> None:
    """Add a repository and build its environment."""
    if kind == "archive":
        if revision or private:
            raise UsageError("--revision and --private: an archive has neither")
        made = session.api.post(
            "/environments/repositories/archive", fields(name=name), files={"archive": readable(location)}
        )
    else:
        token = secret("Access token") if private else ""
        body = fields(kind=kind, location=location, token=token, name=name, revision=revision)
        made = session.api.post("/environments/repositories", body)
    if follow:
        show_build(session, made["environment"], timeout)
    else:
        session.output.rows([made], REPOSITORY_COLUMNS)


builds = Noun("builds", "Builds of environments.", panel=PANEL)


@builds.command("get", example="shop --follow")
def get_build(session: Session, name: str, follow: Follow = False, timeout: Timeout = PATIENCE) -> None:
    """Show the log of the last build."""
    if follow:
        show_build(session, name, timeout)
    else:
        text = session.api.get("/environments/{name}/log", name=name)["text"]
        session.output.said(text.rstrip(), {"log": text})


@builds.command("start", example="shop --follow")
def start_build(session: Session, name: str, follow: Follow = False, timeout: Timeout = PATIENCE) -> None:
    """Build a failed environment again."""
    found = session.api.post("/environments/{name}/again", name=name)
    if follow:
        show_build(session, name, timeout)
    else:
        session.output.rows([found], ENVIRONMENT_COLUMNS)


builds.acts("stop", "/environments/{name}/cancel", ENVIRONMENT_COLUMNS, "Stop a build.", example="shop")

environments = Noun("environments", "Prepared images that tasks run in.", panel=PANEL)
environments.lists("/environments", ENVIRONMENT_COLUMNS, "List environments, newest first.")
environments.gets("/environments/{name}", "Show an environment.", example="shop --json")


@environments.command("create", example="more-itertools --follow")
def create_environment(session: Session, package: str, follow: Follow = False, timeout: Timeout = PATIENCE) -> None:
    """Build the environment of a package of the package index."""
    found = session.api.post("/environments", {"package": package})
    if follow:
        show_build(session, found["name"], timeout)
    else:
        session.output.rows([found], ENVIRONMENT_COLUMNS)


def show_build(session: Session, name: str, timeout: float) -> None:
    session.output.last(wait_build(session.api, name, session.output, timeout=timeout), ENVIRONMENT_COLUMNS)


NOUNS = (repositories, builds, environments)
