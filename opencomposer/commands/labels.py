"""Review queues: people answer questions about rollouts, and their labels become rewards and exclusions."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from opencomposer.errors import UsageError
from opencomposer.files import read_json
from opencomposer.nouns import Noun, fields
from opencomposer.session import Session

PANEL = "Review"
QUEUE_COLUMNS = ("name", "reviewers", "rollouts", "finished", "labels", "closed_at", "title")
Filters = Annotated[str | None, typer.Option(help="Rollouts to add: query of the rollouts table, run=3&verdict=failed")]
MaxRollouts = Annotated[int | None, typer.Option("--limit", help="Most rollouts to add.")]

queues = Noun("review-queues", "Queues of rollouts with questions for people.", panel=PANEL)
queues.lists("/review", QUEUE_COLUMNS, "List queues, newest first.")


@queues.command("get", example="quality --agreement")
def get_queue(
    session: Session,
    name: str,
    next_item: Annotated[bool, typer.Option("--next", help="The next rollout that waits for your labels.")] = False,
    agreement: Annotated[bool, typer.Option("--agreement", help="Agreement beyond chance, by question.")] = False,
    rewards: Annotated[str | None, typer.Option(metavar="QUESTION", help="Labels as rewards from 0 to 1.")] = None,
) -> None:
    """Show a queue with its questions."""
    if next_item:
        session.output.rows([session.api.get("/review/{name}/next", name=name)], ("rollout", "waiting"))
    elif agreement:
        found = session.api.get("/review/{name}/agreement", name=name)
        session.output.rows(found, ("question", "items", "share", "alpha", "kappa"))
    elif rewards is not None:
        found = session.api.get("/review/{name}/rewards", {"question": rewards}, name=name)
        session.output.rows(found, ("rollout", "value"))
    else:
        session.output.one(session.api.get("/review/{name}", name=name))


@queues.command("create", example="quality questions.json --filters 'run=3&verdict=failed'")
def create_queue(
    session: Session,
    name: str,
    questions: Annotated[str, typer.Argument(metavar="FILE", help="JSON list as `review-queues get` has it.")],
    title: str | None = None,
    reviewers: Annotated[int | None, typer.Option(help="Reviewers per rollout.")] = None,
    filters: Filters = None,
    limit: MaxRollouts = None,
) -> None:
    """Create a queue of rollouts with these questions."""
    body = fields(
        name=name, questions=read_json(questions), title=title, reviewers=reviewers, filters=filters, limit=limit
    )
    session.output.rows([session.api.post("/review", body)], QUEUE_COLUMNS)


@queues.command("update", example="quality --filters run=4 --limit 20")
def update_queue(session: Session, name: str, filters: Filters = None, limit: MaxRollouts = None) -> None:
    """Add rollouts to a queue."""
    made = session.api.post("/review/{name}/fill", fields(filters=filters, limit=limit), name=name)
    session.output.rows([made], ("count",))


queues.acts("start", "/review/{name}/{action}", QUEUE_COLUMNS, "Take labels again.", example="quality", action="open")
queues.acts("stop", "/review/{name}/{action}", QUEUE_COLUMNS, "Take no more labels.", example="quality", action="close")

labels = Noun("labels", "Answers of reviewers about rollouts.", panel=PANEL)


@labels.command("list", example="quality 77")
def list_labels(
    session: Session,
    queue: str,
    rollout: Annotated[
        int | None, typer.Argument(metavar="[ROLLOUT]", help="Without it: rollouts whose reviewers disagree.")
    ] = None,
) -> None:
    """List the labels of a rollout, once you have labelled it, or the rollouts whose reviewers disagree."""
    if rollout is None:
        found = session.api.get("/review/{name}/disagreements", name=queue)
        session.output.rows(found, ("rollout", "questions", "hidden"))
        return
    found = session.api.get("/review/{name}/labels/{rollout}", name=queue, rollout=rollout)
    if found is None:
        raise UsageError(
            f"labels of others are shown once you have labelled it: opencomposer labels create {queue} {rollout} …"
        )
    session.output.rows(found, ("rollout", "reviewer", "answers", "created_at"))


@labels.command("create", example="quality 77 verdict=wrong flags=reward_hack,eager")
def create_label(
    session: Session,
    queue: str,
    rollout: int,
    answers: Annotated[list[str], typer.Argument(metavar="question=answer...", help="Several flags by commas.")],
) -> None:
    """Answer the questions about a rollout."""
    questions = session.api.get("/review/{name}", name=queue)["questions"]
    flags = {one["id"] for one in questions if one["kind"] == "flags"}
    found: dict[str, str | list[str]] = {}
    for word in answers:
        question, separator, answer = word.partition("=")
        if not separator:
            raise UsageError(f"{word!r}: write question=answer")
        found[question] = [one for one in answer.split(",") if one] if question in flags else answer
    body = {"rollout": rollout, "answers": found}
    session.output.one(session.api.post("/review/{name}/labels", body, name=queue))


ANNOTATION_COLUMNS = ("id", "rollout", "kind", "value", "turn", "text", "assignee", "author", "created_at")

rollout_annotations = Noun("annotations", "Verdicts, tags, comments and assignees set on trajectories.", panel=PANEL)
rollout_annotations.lists(
    "/annotations",
    ANNOTATION_COLUMNS,
    "List annotations, newest first.",
    filters=("rollout", "run", "kind", "value", "author", "assignee", "text"),
    example="--kind verdict --value bad",
)


@rollout_annotations.command("create", example="77 comment --text 'edits the test' --turn 4")
def create_annotation(
    session: Session,
    rollout: int,
    kind: Annotated[Literal["verdict", "tag", "comment", "needs_review", "assignee"], typer.Argument()],
    value: Annotated[str | None, typer.Argument(help="good, bad or unsure; a tag; or a user name.")] = None,
    text: Annotated[str | None, typer.Option(help="The comment.")] = None,
    turn: Annotated[int | None, typer.Option(min=0, help="Turn of a comment, from 0.")] = None,
    token_start: Annotated[int | None, typer.Option(min=0, help="First token within the turn.")] = None,
    token_end: Annotated[int | None, typer.Option(min=1, help="One past the last token.")] = None,
) -> None:
    """Annotate a rollout."""
    named = {"assignee": value} if kind == "assignee" else {"value": value}
    places = {"turn": turn, "token_start": token_start, "token_end": token_end}
    body = fields(rollout=rollout, kind=kind, text=text, **named, **places)
    session.output.rows([session.api.post("/annotations", body)], ANNOTATION_COLUMNS)


rollout_annotations.deletes("/annotations/{annotation_id}", "Remove an annotation.", example="12")

exclusions = Noun("exclusions", "Rollouts and tasks that labels keep out of training.", panel=PANEL)


@exclusions.command("create", example="quality flags reward_hack --tasks")
def create_exclusions(
    session: Session,
    queue: str,
    question: str,
    value: str,
    tasks: Annotated[bool, typer.Option("--tasks", help="Exclude their tasks instead of the rollouts.")] = False,
) -> None:
    """Exclude from training what most reviewers labelled so."""
    body = {"question": question, "value": value, "tasks": tasks}
    session.output.rows([session.api.post("/review/{name}/exclude", body, name=queue)], ("count",))


NOUNS = (queues, labels, rollout_annotations, exclusions)
