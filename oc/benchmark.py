"""oc evals, releases: what policies can do, measured."""

from __future__ import annotations

import argparse

from oc import waiting
from oc.client import Client
from oc.grammar import Grammar, Handler, given, optional, patience, waits
from oc.models import SideOut
from oc.show import Output

EVAL_COLUMNS = ("id", "policy", "version", "suite", "phase", "state", "groups_done", "groups_total")
RELEASE_COLUMNS = ("benchmark", "number", "suite", "evaluation_count", "notes")
CONDITIONS = (
    *("policy", "samples", "temperature", "effort", "price_input", "price_output", "turns", "context_tokens"),
    *("interrupt", "grader", "seed"),
)
FILTERS = ("run", "policy", "suite", "phase", "state")


def grammar(top: Grammar) -> dict[str, Handler]:
    group = top.noun("evals", "measurements of policies on suites")
    group.listing("evaluations", *FILTERS)
    group.add("show", "one evaluation", "id")
    made = group.add("launch", "measure a policy", "policy", "suite")
    optional(made, "tasks", "samples", "seed", kind=int)
    optional(made, "temperature", kind=float)
    waits(made)
    group.add("stop", "stop an evaluation", "id")
    patience(group.add("follow", "stay with an evaluation", "id"))
    group.add("compare", "two of them, task by task", "before", "after")
    group.add("history", "a task in every evaluation", "task")
    optional(group.add("grade", "score its side evaluations, again if need be", "id"), "grader")

    group = top.noun("releases", "immutable benchmark releases")
    group.listing("releases")
    group.add("show", "one release", "benchmark", "number")
    made = group.add("publish", "the next release of a benchmark, from a suite", "benchmark", "suite")
    made.add_argument("--keep", action="store_true", help="take over unflagged tasks of the release before")
    made.add_argument("--unreviewed", action="store_true", help="also tasks that two reviewers have not admitted")
    optional(made, "notes")
    made = group.add("run", "passes of a policy over every task of a release", "benchmark", "number", "policy")
    optional(made, "samples", "turns", "context_tokens", "seed", kind=int)
    optional(made, "temperature", "price_input", "price_output", kind=float)
    optional(made, "effort", "grader")
    made.add_argument("--interrupt", action="store_true", help="a person stops every rollout half-way; ranked nowhere")
    waits(made)
    group.add("check", "compare with the training suites again", "benchmark", "number")
    group.add("standings", "its leaderboard", "benchmark", "number")
    return {"evals": _evals, "releases": _releases}


def _evals(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.evaluations.list(limit=options.limit, **given(options, FILTERS)), EVAL_COLUMNS)
        case "show":
            output.one(client.evaluations.get(options.id))
        case "launch":
            made = client.evaluations.create(
                **given(options, ("policy", "suite", "tasks", "samples", "temperature", "seed"))
            )
            _started(client, made.id, options, output)
        case "follow":
            _follow(client, options.id, options, output)
        case "compare":
            _compare(client, options, output)
        case "history":
            _history(client, options.task, output)
        case "grade":
            output.rows([client.evaluations.grade(options.id, **given(options, ("grader",)))], EVAL_COLUMNS)
        case _:
            output.rows([client.evaluations.cancel(options.id)], EVAL_COLUMNS)


def _compare(client: Client, options: argparse.Namespace, output: Output) -> None:
    found = client.evaluations.compare(before=options.before, after=options.after)
    output.said(
        f"{found.difference:+.3f} ({found.low:+.3f} to {found.high:+.3f}) on the tasks of both; {found.only_one} in one only",
        found.model_dump(mode="json"),
    )
    if not output.as_json:
        output.rows(found.changes, ("task", "verdict", "difference", "chance"))


def _history(client: Client, task: str, output: Output) -> None:
    found = client.evaluations.task_history(task)
    if output.as_json:
        output.rows(found, ())
        return
    table = [[str(one.evaluation), one.name, one.release or "-", _solved(one.side)] for one in found]
    output.table(("evaluation", "policy", "release", "passed"), table)


def _solved(side: SideOut) -> str:
    return f"{len(side.passed)} of {len(side.passed) + len(side.failed)}"


def _releases(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.releases.list(limit=options.limit), RELEASE_COLUMNS)
        case "show":
            output.one(client.releases.get(options.benchmark, options.number))
        case "publish":
            names = ("benchmark", "suite", "keep", "unreviewed", "notes")
            output.rows([client.releases.publish(**given(options, names))], RELEASE_COLUMNS)
        case "run":
            made = client.releases.evaluate(options.benchmark, options.number, **given(options, CONDITIONS))
            _started(client, made.id, options, output)
        case "check":
            output.rows([client.releases.check(options.benchmark, options.number)], RELEASE_COLUMNS)
        case _:
            output.one(client.releases.get_standings(options.benchmark, options.number))


def _started(client: Client, pk: int, options: argparse.Namespace, output: Output) -> None:
    if options.follow:
        _follow(client, pk, options, output)
    else:
        output.rows([client.evaluations.get(pk)], EVAL_COLUMNS)


def _follow(client: Client, pk: int, options: argparse.Namespace, output: Output) -> None:
    output.last(waiting.evaluation(client, pk, output, timeout=options.timeout), EVAL_COLUMNS)
