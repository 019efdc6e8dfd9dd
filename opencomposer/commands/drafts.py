"""Drafts of tasks, from a moment of a rollout or from a production session."""

from __future__ import annotations

from typing import Annotated

import typer

from opencomposer.errors import UsageError
from opencomposer.files import read_json, read_text
from opencomposer.nouns import PATIENCE, Follow, Noun, Timeout, fields
from opencomposer.session import Session
from opencomposer.waiting import wait

COLUMNS = ("id", "slug", "state", "category", "rollout_id", "turn", "cause")

DraftId = Annotated[int, typer.Argument(metavar="ID")]

drafts = Noun("drafts", "Tasks in the making.", panel="Tasks")
drafts.lists("/drafts", COLUMNS, "List drafts, newest first.")
drafts.gets("/drafts/{draft_id}", "Show a draft.", example="6 --json")


@drafts.command("create", example="login-race words.txt --rollout 77 --turn 4 --follow")
def create_draft(
    session: Session,
    slug: Annotated[str, typer.Argument(help="Name of the task that it becomes.")],
    instruction: Annotated[str, typer.Argument(metavar="FILE", help="Its instruction; - is standard input.")],
    rollout: Annotated[int | None, typer.Option(help="Rollout that it begins from.")] = None,
    turn: Annotated[
        int | None, typer.Option(help="Turns of the rollout whose changes are kept; 0: before the first.")
    ] = None,
    from_session: Annotated[
        int | None, typer.Option("--session", metavar="ID", help="Production session that it begins from.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="With --session: task whose environment it gets.")] = None,
    category: str | None = None,
    follow: Follow = False,
    timeout: Timeout = PATIENCE,
) -> None:
    """Create a draft from a rollout (--rollout, --turn) or from a production session (--session, --task)."""
    words = fields(slug=slug, instruction=read_text(instruction), category=category)
    if rollout is not None and turn is not None and from_session is None and task is None:
        made = session.api.post("/drafts", {**words, "rollout": rollout, "turn": turn})
    elif from_session is not None and task is not None and rollout is None and turn is None:
        body = {**words, "task": task}
        made = session.api.post("/gateway/sessions/{session_id}/drafts", body, session_id=from_session)
    else:
        raise UsageError("name either --rollout and --turn, or --session and --task")
    if follow:
        made = wait(
            lambda: session.api.get("/drafts/{draft_id}", draft_id=made["id"]),
            what=f"draft {slug}",
            ended=("open", "failed", "published", "discarded"),
            good=("open", "published"),
            timeout=timeout,
        )
        session.output.last(made, COLUMNS)
    else:
        session.output.rows([made], COLUMNS)


@drafts.command("update", example="6 --instruction words.txt --verifier tests.json")
def update_draft(
    session: Session,
    pk: DraftId,
    instruction: Annotated[str | None, typer.Option(metavar="FILE", help="Instruction; - is standard input.")] = None,
    category: str | None = None,
    verifier: Annotated[
        str | None, typer.Option(metavar="FILE", help="Hidden tests: JSON as `tasks get` has them.")
    ] = None,
    gold: Annotated[
        str | None, typer.Option(metavar="FILE", help="Reference solution: JSON, path → content when solved.")
    ] = None,
) -> None:
    """Change a draft; what is not named stays."""
    found = session.api.get("/drafts/{draft_id}", draft_id=pk)
    body = fields(
        instruction=found["instruction"] if instruction is None else read_text(instruction),
        category=found["category"] if category is None else category,
        verifier=None if verifier is None else read_json(verifier),
        gold=None if gold is None else read_json(gold),
    )
    session.output.rows([session.api.put("/drafts/{draft_id}", body, draft_id=pk)], COLUMNS)


drafts.acts("start", "/drafts/{draft_id}/{action}", COLUMNS, "Publish a draft as a task and run its controls.",
            example="6", action="publish")  # fmt: skip
drafts.acts("delete", "/drafts/{draft_id}/{action}", COLUMNS, "Discard a draft.", example="6", action="discard")

NOUNS = (drafts,)
