"""Suites: sets of task versions, and how hard they are."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from opencomposer.errors import UsageError
from opencomposer.files import Target, packed, read_json
from opencomposer.nouns import PATIENCE, Follow, Noun, OutputFile, Timeout, fields
from opencomposer.session import Session
from opencomposer.waiting import wait_evaluation

PANEL = "Tasks"
SUITE_COLUMNS = ("name", "purpose", "reviewed", "task_count", "valid_count", "rejected_count", "description")
DIFFICULTY_COLUMNS = ("policy", "measured", "solved_all", "solved_none", "pass_rate", "turns", "thinking_tokens")
MEMBER_COLUMNS = ("position", "task", "version", "controls_ok", "bundle_hash")
Purpose = Literal["train", "held-out", "benchmark"]
TaskFormat = Literal["harbor", "swe-bench"]

suites = Noun("suites", "Sets of task versions.", panel=PANEL)
suites.lists("/suites", SUITE_COLUMNS, "List suites, newest first.")


@suites.command("get", example="train --format harbor -o train.zip")
def get_suite(
    session: Session,
    name: str,
    format: Annotated[TaskFormat | None, typer.Option(help="Write its tasks in another project's format.")] = None,
    output: OutputFile = "-",
) -> None:
    """Show a suite, or write its tasks to a file."""
    if format:
        write_bundle(session, "/suites/{name}/export/{format}", output, name=name, format=format)
    else:
        session.output.one(session.api.get("/suites/{name}", name=name))


@suites.command("create", example="bench --reviewed")
def create_suite(
    session: Session,
    name: str,
    file: Annotated[
        str | None, typer.Option(help="Its tasks; without it, an empty suite to curate into. - is standard input.")
    ] = None,
    format: Annotated[
        Literal["bundles", "harbor", "swe-bench"],
        typer.Option(
            help="Of the file: JSON list of specs as `tasks get` has them, zip or folder of Harbor directories, rows."
        ),
    ] = "bundles",
    purpose: Purpose = "benchmark",
    description: str | None = None,
    reviewed: Annotated[
        bool, typer.Option("--reviewed", help="Only tasks that two reviewers accept can join; empty suites only.")
    ] = False,
    environment: Annotated[str | None, typer.Option(help="Ready environment that SWE-bench rows are about.")] = None,
) -> None:
    """Create a suite: empty, or from a file."""
    if reviewed and file:
        raise UsageError("--reviewed: such a suite begins empty; leave out --file")
    if file is None:
        if format != "bundles" or environment:
            raise UsageError("--format and --environment: name a --file")
        body = fields(name=name, purpose=purpose, description=description or "", reviewed=reviewed)
        session.output.rows([session.api.post("/curation/suites", body)], SUITE_COLUMNS)
    elif format == "bundles":
        body = fields(name=name, purpose=purpose, description=description, tasks=read_json(file))
        session.output.rows([session.api.post("/suites", body)], SUITE_COLUMNS)
    else:
        if description:
            raise UsageError(f"--description: a suite from {format} has none")
        query = fields(format=format, purpose=purpose, environment=environment)
        with packed(file) as path:
            made = session.api.post("/suites/{name}/import", params=query, files={"file": path}, name=name)
        session.output.rows([made], ("suite", "tasks", "not_carried"))


suite_tasks = Noun("suite-tasks", "The tasks of a suite in their order.", panel=PANEL)


@suite_tasks.command("list", example="train --limit 20")
def list_suite_tasks(
    session: Session,
    suite: str,
    limit: Annotated[int | None, typer.Option(min=1, help="Most tasks to show (default: all).")] = None,
    after: Annotated[int | None, typer.Option(help="Position after which to begin.")] = None,
) -> None:
    """List the tasks of a suite."""
    found: list[dict[str, Any]] = []
    while limit is None or len(found) < limit:
        query = {"limit": 100 if limit is None else min(100, limit - len(found)), "after": after}
        page = session.api.get("/suites/{name}/tasks", query, name=suite)
        found += page["items"]
        after = page["next"]
        if after is None:
            break
    session.output.rows(found, MEMBER_COLUMNS)


difficulty = Noun("difficulty", "How hard a suite is for each policy.", panel=PANEL)


@difficulty.command("list", example="train")
def list_difficulty(session: Session, suite: str) -> None:
    """List what pre-passes measured."""
    session.output.rows(session.api.get("/suites/{name}/difficulty", name=suite), DIFFICULTY_COLUMNS)


@difficulty.command("create", example="train base --samples 8 --follow")
def create_difficulty(
    session: Session,
    suite: str,
    policy: str,
    samples: int | None = None,
    tasks: Annotated[int | None, typer.Option(help="Tasks to measure (default: all).")] = None,
    seed: int | None = None,
    follow: Follow = False,
    timeout: Timeout = PATIENCE,
) -> None:
    """Measure how hard a suite is for a policy (a pre-pass)."""
    body = fields(policy=policy, samples=samples, tasks=tasks, seed=seed)
    asked = session.api.post("/suites/{name}/prepass", body, name=suite)
    if not follow:
        session.output.said(f"evaluation {asked['evaluation']} measures it", asked)
        return
    wait_evaluation(session.api, asked["evaluation"], session.output, timeout=timeout)
    name = policy.partition("@")[0]
    for found in session.api.get("/suites/{name}/difficulty", name=suite):
        if found["policy"].partition("@")[0] == name:
            session.output.last(found, DIFFICULTY_COLUMNS)


def write_bundle(session: Session, path: str, output: str, **parts: Any) -> None:
    """Tasks with hidden tests and oracles, as a file. Raises UsageError."""
    with Target(output, session.output.out) as file:
        if parts["format"] == "harbor":
            file.refuse_terminal("a Harbor zip")
        session.api.download(path, file, **parts)


NOUNS = (suites, suite_tasks, difficulty)
