"""oc datasets: demonstrations to train on, prepared from rollouts or from files."""

from __future__ import annotations

import argparse

from oc.client import Client
from oc.files import readable
from oc.grammar import Grammar, Handler, given, optional, patience
from oc.models import DatasetOut
from oc.show import Output
from oc.waiting import Ended, until

COLUMNS = ("id", "name", "state", "conversations", "dropped", "cause", "created_at")


def grammar(top: Grammar) -> dict[str, Handler]:
    group = top.noun("datasets", "demonstrations to train on")
    group.add("list", "all of them, newest first")
    group.add("show", "one of them: what was kept, and why not more", "id")
    made = group.add("make", "of rollouts, or of files in the server's data folder", "name")
    optional(made, "folder", "rollouts")
    made.add_argument("--most", type=int, help="conversations to keep")
    made.add_argument("--suites", nargs="*", help="only of tasks of these")
    patience(made)
    made = group.add("upload", "of a file of one's own: JSONL, JSON or Parquet of messages, or ATIF", "name", "file")
    patience(made)
    for name in ("make", "upload"):
        group[name].add_argument("--follow", action="store_true", help="stay until it is prepared")
    patience(group.add("follow", "stay until it is prepared", "id"))
    group.add("remove", "remove one that no run names", "id")
    return {"datasets": _datasets}


def _datasets(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.datasets.list(), COLUMNS)
        case "show":
            output.one(client.datasets.get(options.id))
        case "make":
            names = ("name", "folder", "rollouts", "most", "suites")
            _made(client, client.datasets.create(**given(options, names)), options, output)
        case "upload":
            _made(client, client.datasets.upload(name=options.name, file=readable(options.file)), options, output)
        case "follow":
            output.last(_prepared(client, options.id, timeout=options.timeout), COLUMNS)
        case _:
            client.datasets.remove(options.id)
            output.said(f"removed dataset {options.id}", {"removed": options.id})


def _made(client: Client, made: DatasetOut, options: argparse.Namespace, output: Output) -> None:
    if options.follow:
        output.last(_prepared(client, made.id, timeout=options.timeout), COLUMNS)
    else:
        output.rows([made], COLUMNS)


def _prepared(client: Client, pk: int, *, timeout: float) -> DatasetOut:
    """Raises Ended when it failed."""
    found = until(
        lambda: client.datasets.get(pk),
        lambda one: one.state in ("done", "failed"),
        timeout=timeout,
        what=f"dataset {pk}",
    )
    if found.state == "failed":
        raise Ended(f"dataset {found.name}: {found.cause}")
    return found
