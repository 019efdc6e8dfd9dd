"""Evaluations of policies on suites, and benchmark releases."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from opencomposer.errors import UsageError
from opencomposer.files import Target
from opencomposer.nouns import PATIENCE, Follow, Noun, OutputFile, Timeout, fields
from opencomposer.session import Session
from opencomposer.waiting import wait_evaluation

PANEL = "Evaluation"
EVALUATION_COLUMNS = ("id", "policy", "version", "suite", "phase", "state", "groups_done", "groups_total")
SCORE_COLUMNS = ("id", "policy", "version", "suite", "state", "pass1", "interval", "best", "samples")
EVALUATION_FILTERS = ("run", "policy", "suite", "phase", "state")
RELEASE_COLUMNS = ("benchmark", "number", "suite", "evaluation_count", "notes")

evaluations = Noun("evaluations", "Policies measured on suites.", panel=PANEL)
evaluations.lists(
    "/evaluations",
    EVALUATION_COLUMNS,
    "List evaluations, newest first.",
    filters=EVALUATION_FILTERS,
    example="--policy base",
)


@evaluations.command("get", example="3 --format inspect -o 3.eval")
def get_evaluation(
    session: Session,
    pk: Annotated[int, typer.Argument(metavar="ID")],
    compare: Annotated[
        int | None, typer.Option(metavar="LATER", help="Compare it, task by task, with a later one.")
    ] = None,
    format: Annotated[Literal["inspect"] | None, typer.Option(help="Write its rollouts as a log of Inspect.")] = None,
    output: OutputFile = "-",
    follow: Follow = False,
    timeout: Timeout = PATIENCE,
) -> None:
    """Show an evaluation, follow it, compare it with another one, or write its rollouts to a file."""
    if format:
        with Target(output, session.output.out) as file:
            file.refuse_terminal("a log of Inspect")
            session.api.download("/evaluations/{evaluation_id}/export/inspect", file, evaluation_id=pk)
    elif follow:
        _follow(session, pk, timeout)
    elif compare is not None:
        found = session.api.get("/evaluations/compare", {"before": pk, "after": compare})
        interval = f"{found['low']:+.3f} to {found['high']:+.3f}"
        session.output.said(
            f"{found['difference']:+.3f} ({interval}) on the tasks of both; {found['only_one']} in one only", found
        )
        if not session.output.as_json:
            session.output.rows(found["changes"], ("task", "verdict", "difference", "chance"))
    else:
        session.output.one(session.api.get("/evaluations/{evaluation_id}", evaluation_id=pk))


@evaluations.command("create", example="base held-out --samples 8 --follow")
def create_evaluation(
    session: Session,
    policy: Annotated[str, typer.Argument(help="name or name@version")],
    suite: Annotated[str | None, typer.Argument(metavar="[SUITE]", help="Unless --release names one.")] = None,
    release: Annotated[
        str | None, typer.Option(metavar="BENCHMARK@NUMBER", help="Run it over every task of a release.")
    ] = None,
    tasks: Annotated[int | None, typer.Option(help="Tasks of the suite (default: all).")] = None,
    samples: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    turns: Annotated[int | None, typer.Option(help="Most turns of a rollout (default: derived).")] = None,
    context_tokens: Annotated[int | None, typer.Option(help="Max tokens of a rollout (default: derived).")] = None,
    effort: Annotated[str | None, typer.Option(help="With --release: reasoning effort.")] = None,
    price_input: Annotated[float | None, typer.Option(help="With --release: dollars for a million tokens.")] = None,
    price_output: Annotated[float | None, typer.Option(help="With --release: dollars for a million tokens.")] = None,
    grader: Annotated[str | None, typer.Option(help="With --release: policy that grades side evaluations.")] = None,
    interrupt: Annotated[
        bool, typer.Option("--interrupt", help="With --release: a user interrupts each rollout half-way; not ranked.")
    ] = False,
    follow: Follow = False,
    timeout: Timeout = PATIENCE,
) -> None:
    """Evaluate a policy on a suite or on a benchmark release."""
    body = fields(policy=policy, samples=samples, temperature=temperature, seed=seed)
    body |= fields(turns=turns, context_tokens=context_tokens)
    conditions = fields(effort=effort, price_input=price_input)
    conditions |= fields(price_output=price_output, grader=grader, interrupt=interrupt or None)
    if (suite is None) == (release is None):
        raise UsageError("name either a suite or --release BENCHMARK@NUMBER")
    if release is not None:
        if tasks is not None:
            raise UsageError("--tasks: a release is always run whole")
        benchmark, number = release_of(release)
        made = session.api.post(
            "/releases/{benchmark}/{number}/evaluations", {**body, **conditions}, benchmark=benchmark, number=number
        )
    else:
        if conditions:
            raise UsageError(f"--{min(conditions).replace('_', '-')}: only with --release")
        made = session.api.post("/evaluations", {**body, **fields(suite=suite, tasks=tasks)})
    if follow:
        _follow(session, made["id"], timeout)
    else:
        session.output.rows([made], EVALUATION_COLUMNS)


evaluations.acts("stop", "/evaluations/{evaluation_id}/cancel", EVALUATION_COLUMNS, "Stop an evaluation.", example="3")

task_results = Noun("task-results", "One task in every evaluation.", panel=PANEL)


@task_results.command("list", example="fix-login")
def list_task_results(session: Session, task: str) -> None:
    """List the evaluations of a task with how often it was solved."""
    found = session.api.get("/evaluations/tasks/{slug}", slug=task)
    if session.output.as_json:
        session.output.rows(found, ())
        return
    table = [[str(one["evaluation"]), one["name"], one["release"] or "-", _solved(one["side"])] for one in found]
    session.output.table(("evaluation", "policy", "release", "passed"), table)


grades = Noun("grades", "Scores of side evaluations.", panel=PANEL)


@grades.command("create", example="3 --grader remote")
def create_grades(session: Session, evaluation: int, grader: str | None = None) -> None:
    """Grade the side evaluations of an evaluation, also again."""
    body = fields(grader=grader)
    made = session.api.post("/evaluations/{evaluation_id}/grade", body, evaluation_id=evaluation)
    session.output.rows([made], EVALUATION_COLUMNS)


releases = Noun("releases", "Immutable benchmark releases.", panel=PANEL)
releases.lists("/releases", RELEASE_COLUMNS, "List releases, newest first.")
releases.gets("/releases/{benchmark}/{number}", "Show a release.", example="shop 1")


@releases.command("create", example="shop shop-bench --notes 'first release'")
def create_release(
    session: Session,
    benchmark: str,
    suite: str,
    keep: Annotated[bool, typer.Option("--keep", help="Also unflagged tasks of the release before.")] = False,
    unreviewed: Annotated[bool, typer.Option("--unreviewed", help="Also tasks without two reviews.")] = False,
    notes: str | None = None,
) -> None:
    """Publish the next release of a benchmark from a suite."""
    body = fields(benchmark=benchmark, suite=suite, keep=keep, unreviewed=unreviewed, notes=notes)
    session.output.rows([session.api.post("/releases", body)], RELEASE_COLUMNS)


leaderboards = Noun("leaderboards", "Ranking of policies on a release.", panel=PANEL)
leaderboards.gets("/releases/{benchmark}/{number}/standings", "Show a leaderboard.", example="shop 1 --json")

contamination_checks = Noun("contamination-checks", "Overlap of a release with training suites.", panel=PANEL)
contamination_checks.acts(
    "create",
    "/releases/{benchmark}/{number}/check",
    RELEASE_COLUMNS,
    "Compare a release with the training suites again.",
    example="shop 1",
)


def release_of(text: str) -> tuple[str, int]:
    """`shop@1` → ("shop", 1). Raises UsageError."""
    benchmark, separator, number = text.rpartition("@")
    if not separator or not number.isdigit():
        raise UsageError(f"--release {text!r}: write BENCHMARK@NUMBER, for example shop@1")
    return benchmark, int(number)


def _solved(side: dict[str, Any]) -> str:
    return f"{len(side['passed'])} of {len(side['passed']) + len(side['failed'])}"


def _follow(session: Session, pk: int, timeout: float) -> None:
    done = wait_evaluation(session.api, pk, session.output, timeout=timeout)
    session.output.last(done if session.output.as_json else _scored(done), SCORE_COLUMNS)


def _scored(evaluation: dict[str, Any]) -> dict[str, Any]:
    """With its score as columns."""
    results = evaluation["results"]
    low, high = results.get("pass1_low"), results.get("pass1_high")
    interval = None if low is None or high is None else f"{low:.3f} to {high:.3f}"
    return {**evaluation, "pass1": results.get("pass1"), "interval": interval, "best": results.get("best")}


NOUNS = (evaluations, task_results, grades, releases, leaderboards, contamination_checks)
