"""Tasks: their generation, review, changes and controls."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from opencomposer.commands.suites import SUITE_COLUMNS, TaskFormat, write_bundle
from opencomposer.errors import UsageError
from opencomposer.files import read_text
from opencomposer.nouns import PATIENCE, Follow, Noun, OutputFile, Timeout, fields
from opencomposer.session import Session
from opencomposer.waiting import wait_controls, wait_generation

PANEL = "Tasks"
TASK_COLUMNS = ("slug", "source", "category", "controls_ok", "test_strength", "review", "split", "tags")
TASK_FILTERS = (
    *("q", "source", "category", "suite", "controls", "strength", "difficulty"),
    *("strength_max", "review", "mine", "split", "tag", "finding", "left_out"),
)
JOB_COLUMNS = (
    "id",
    "name",
    "state",
    "kept",
    "requested",
    "tried",
    "per_minute",
    "eta_seconds",
    "current",
    "requested_at",
    "why",
)
GENERATOR_COLUMNS = ("generator", "package", "tried", "kept", "per_minute", "seconds", "created_at")
CHANGE_COLUMNS = ("id", "task", "field", "before", "after", "actor_name", "at", "batch")
BATCH_COLUMNS = ("id", "changed", "unchanged")
REVIEW_COLUMNS = ("task", "version", "state", "mine")

tasks = Noun("tasks", "Instruction, environment and hidden tests.", panel=PANEL)
tasks.lists(
    "/tasks", TASK_COLUMNS, "List tasks, newest first.", filters=TASK_FILTERS, example="--suite train --tag easy"
)


@tasks.command("get", example="fix-login --compare 1 2")
def get_task(
    session: Session,
    slug: str,
    compare: Annotated[
        tuple[int, int] | None, typer.Option(metavar="BEFORE AFTER", help="Show what differs between two versions.")
    ] = None,
    format: Annotated[
        TaskFormat | None, typer.Option(help="Write it, with hidden tests and oracle, in another project's format.")
    ] = None,
    output: OutputFile = "-",
) -> None:
    """Show a task with its versions."""
    if format:
        write_bundle(session, "/tasks/{slug}/export/{format}", output, slug=slug, format=format)
    elif compare:
        query = {"before": compare[0], "after": compare[1]}
        parts = session.api.get("/curation/tasks/{slug}/compare", query, slug=slug)
        words = "\n".join(f"{part['name']}\n{part['diff']}" for part in parts) or "they are the same"
        session.output.said(words, parts)
    else:
        session.output.one(session.api.get("/tasks/{slug}", slug=slug))


@tasks.command("update", example="fix-login add-cart --add-tags easy,web")
def update_tasks(
    session: Session,
    slugs: Annotated[list[str], typer.Argument(metavar="SLUG...")],
    instruction: Annotated[
        str | None, typer.Option(metavar="FILE", help="Next version, with this instruction; - is standard input.")
    ] = None,
    add_tags: Annotated[str | None, typer.Option(help="Tags, separated by commas.")] = None,
    remove_tags: Annotated[str | None, typer.Option(help="Tags, separated by commas.")] = None,
    split: Annotated[str | None, typer.Option(help="Move them to this split; empty: to none.")] = None,
    add_to: Annotated[str | None, typer.Option(metavar="SUITE", help="Add them to a suite.")] = None,
    remove_from: Annotated[str | None, typer.Option(metavar="SUITE", help="Remove them from a suite.")] = None,
    leave_training: Annotated[bool, typer.Option(help="Move them out of training; a used suite is replaced.")] = False,
) -> None:
    """Change the instruction of one task, or tags, split or suite of many. `task-changes delete` undoes the latter."""
    out = "" if leave_training else None
    actions = fields(
        tag=add_tags, untag=remove_tags, leave_training=out, split=split, suite=add_to, unsuite=remove_from
    )
    if (instruction is None) == (not actions):
        raise UsageError("name what to change: either --instruction, or --add-tags, --split, --add-to and their like")
    if instruction is not None:
        if len(slugs) != 1:
            raise UsageError("--instruction: name one task")
        words = read_text(instruction)
        made = session.api.post("/curation/tasks/{slug}/instruction", {"instruction": words}, slug=slugs[0])
        session.output.rows([made], ("task", "version"))
        return
    done = [
        session.api.post("/curation/bulk", {"action": action, "value": value, "tasks": slugs})
        for action, value in actions.items()
    ]
    session.output.rows(done, BATCH_COLUMNS)


generation_jobs = Noun("generation-jobs", "Suites that generators make.", panel=PANEL)
generation_jobs.lists(
    "/tasks/generation-jobs", JOB_COLUMNS, "List generation jobs, with progress and ETA.", paged=False
)
generation_jobs.gets("/tasks/generation-jobs/{job_id}", "Show one generation job.", example="7")
generation_jobs.acts(
    "stop", "/tasks/generation-jobs/{job_id}/stop", JOB_COLUMNS, "Stop a generation job; no suite is made.", example="7"
)


@generation_jobs.command("create", example="fresh shop --generators mutation --generators deletion --count 8 --follow")
def create_generation_job(
    session: Session,
    suite: Annotated[str, typer.Argument(help="Name of the new suite.")],
    packages: Annotated[list[str], typer.Argument(help="Packages or repositories.")],
    generators: Annotated[list[str] | None, typer.Option(help="Generator; may be repeated.")] = None,
    styles: Annotated[list[str] | None, typer.Option(help="Style of instructions; may be repeated.")] = None,
    purpose: Annotated[str | None, typer.Option(help="train, held-out or benchmark.")] = None,
    rewriter: Annotated[str | None, typer.Option(help="Endpoint that rewrites instructions.")] = None,
    count: Annotated[int | None, typer.Option(help="Most tasks to make.")] = None,
    seed: int | None = None,
    follow: Follow = False,
    timeout: Timeout = PATIENCE,
) -> None:
    """Generate a suite. With --follow, wait until it exists and its controls have run."""
    body = fields(
        name=suite,
        packages=packages,
        generators=generators,
        styles=styles,
        purpose=purpose,
        rewriter=rewriter,
        count=count,
        seed=seed,
    )
    asked = session.api.post("/tasks/generators", body)
    if follow:
        suite_made = wait_generation(session.api, asked["job"], timeout=timeout, say=session.output.progress)
        session.output.last(suite_made, SUITE_COLUMNS)
    else:
        session.output.said(f"generation of at most {asked['requested']} tasks started", asked)


generator_runs = Noun("generator-runs", "What generators tried, kept and spent.", panel=PANEL)
generator_runs.lists("/tasks/generators", GENERATOR_COLUMNS, "List runs of generators, newest first.")

task_reviews = Noun("task-reviews", "Reviews of tasks before they join a reviewed suite.", panel=PANEL)
task_reviews.lists(
    "/curation/disagreements",
    ("task", "version", "reviews", "hidden"),
    "List tasks whose reviewers disagree.",
    paged=False,
)


@task_reviews.command("get", example="--suite train")
def get_task_reviews(
    session: Session,
    slug: Annotated[
        str | None, typer.Argument(metavar="[SLUG]", help="Reviews of this task; without it, the next task to review.")
    ] = None,
    suite: Annotated[str | None, typer.Option(help="Next task of this suite.")] = None,
    filters: Annotated[
        list[str] | None, typer.Option("--filter", metavar="name=value", help="A filter of `tasks list`.")
    ] = None,
) -> None:
    """Show the reviews of a task, once you have reviewed it, or the next task that waits for your review."""
    if slug is not None:
        session.output.one(session.api.get("/curation/tasks/{slug}/reviews", slug=slug))
        return
    query = fields(suite=suite)
    for word in filters or []:
        name, separator, value = word.partition("=")
        if not separator or name not in TASK_FILTERS:
            raise UsageError(f"--filter {word!r}: write name=value; names are {', '.join(TASK_FILTERS)}")
        query[name] = value
    session.output.rows([session.api.get("/curation/next", query)], ("task", "waiting"))


@task_reviews.command("create", example="fix-login accept --into bench --note 'clear and tested'")
def create_task_review(
    session: Session,
    slug: str,
    decision: Literal["accept", "reject"],
    note: str | None = None,
    into: Annotated[str | None, typer.Option(metavar="SUITE", help="Reviewed suite that it joins.")] = None,
    version: Annotated[int | None, typer.Option(help="Version that was read (default: the newest).")] = None,
) -> None:
    """Accept or reject the newest version of a task."""
    body = fields(decision=decision, note=note, into=into, version=version)
    session.output.rows([session.api.post("/curation/tasks/{slug}/reviews", body, slug=slug)], REVIEW_COLUMNS)


@task_reviews.command("delete", example="fix-login")
def delete_task_review(session: Session, slug: str, note: str | None = None) -> None:
    """Withdraw your review of a task."""
    body = fields(decision="withdrawn", note=note)
    session.output.rows([session.api.post("/curation/tasks/{slug}/reviews", body, slug=slug)], REVIEW_COLUMNS)


task_changes = Noun("task-changes", "History of changes of tasks.", panel=PANEL)
task_changes.lists("/curation/changes", CHANGE_COLUMNS, "List changes, newest first.", filters=("task",))


@task_changes.command("delete", example="0d6c7a52-2b8f-4a55-9d0c-3a1f5f0f7f11")
def delete_task_changes(session: Session, batch: str) -> None:
    """Undo a batch of changes."""
    session.output.rows([session.api.post("/curation/undo/{batch}", batch=batch)], BATCH_COLUMNS)


controls = Noun("controls", "Controls: runs that show that a task can be solved, and only by solving it.", panel=PANEL)


@controls.command("start", example="--suite train --follow")
def start_controls(
    session: Session,
    task: Annotated[str | None, typer.Option(help="Run all controls of this task again.")] = None,
    suite: Annotated[str | None, typer.Option(help="Run the controls that tasks of this suite lack.")] = None,
    follow: Follow = False,
    timeout: Timeout = PATIENCE,
) -> None:
    """Run the controls of a task or a suite."""
    if (task is None) == (suite is None):
        raise UsageError("name one of --task and --suite")
    if task is not None:
        if follow:
            raise UsageError("--follow: only --suite can be followed; `tasks get` shows the controls of a task")
        asked = session.api.post("/tasks/{slug}/controls", slug=task)
    else:
        asked = session.api.post("/suites/{name}/validate", name=suite)
    if follow and suite is not None:
        session.output.last(wait_controls(session.api, suite, timeout=timeout), SUITE_COLUMNS)
    else:
        session.output.said(f"{asked['requested']} controls started", asked)


NOUNS = (tasks, generation_jobs, generator_runs, task_reviews, task_changes, controls)
