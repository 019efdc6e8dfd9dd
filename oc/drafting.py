"""oc drafts: tasks in the making, from a moment of a rollout or of a production session."""

from __future__ import annotations

import argparse
from typing import Any

from oc.client import Client
from oc.everything import read
from oc.files import words_of
from oc.grammar import Grammar, Handler, given, optional, waits
from oc.models import DraftOut
from oc.show import Output
from oc.waiting import Ended, until

COLUMNS = ("id", "slug", "state", "category", "rollout_id", "turn", "cause")


def grammar(top: Grammar) -> dict[str, Handler]:
    group = top.noun("drafts", "tasks in the making, from moments of rollouts and sessions")
    group.listing("drafts")
    group.add("show", "one draft", "id")
    made = group.add("make", "one of a rollout as it was after some of its turns", "rollout")
    made.add_argument("turn", type=int, help="turns of the session whose changes are kept; 0: before the first")
    made.add_argument("slug", help="name of the task that it becomes")
    made.add_argument("instruction", help="file with the words; - reads standard input")
    optional(made, "category")
    waits(made, "stay until its files are collected")
    made = group.add("change", "other words, hidden tests or reference solution", "id")
    made.add_argument("--instruction", help="file with the words; - reads standard input")
    optional(made, "category")
    made.add_argument("--verifier", help="JSON file with the hidden tests, as `oc tasks show` has them")
    made.add_argument("--gold", help="JSON file: path → what it holds when the task is solved")
    group.add("publish", "make it a task; its controls are asked for", "id")
    group.add("discard", "throw it away", "id")
    return {"drafts": _drafts}


def _drafts(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.drafts.list(limit=options.limit), COLUMNS)
        case "show":
            output.one(client.drafts.get(options.id))
        case "make":
            _make(client, options, output)
        case "change":
            output.rows([client.drafts.change(options.id, **_changes(client, options))], COLUMNS)
        case action:
            output.rows([client.drafts.end(options.id, action)], COLUMNS)


def _make(client: Client, options: argparse.Namespace, output: Output) -> None:
    named = given(options, ("rollout", "turn", "slug", "category"))
    made = client.drafts.create(instruction=words_of(options.instruction), **named)
    if options.follow:
        output.last(_collected(client, made.id, timeout=options.timeout), COLUMNS)
    else:
        output.rows([made], COLUMNS)


def _collected(client: Client, pk: int, *, timeout: float) -> DraftOut:
    """Raises Ended when its files could not be collected."""
    found = until(
        lambda: client.drafts.get(pk), lambda one: one.state != "collecting", timeout=timeout, what=f"draft {pk}"
    )
    if found.state == "failed":
        raise Ended(f"draft {found.slug}: {found.cause}")
    return found


def _changes(client: Client, options: argparse.Namespace) -> dict[str, Any]:
    """What is not named stays as it is."""
    found = client.drafts.get(options.id)
    text = found.instruction if options.instruction is None else words_of(options.instruction)
    files = {name: read(value) for name, value in given(options, ("verifier", "gold")).items()}
    return {"instruction": text, "category": options.category or found.category, **files}
