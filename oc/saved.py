"""oc views, queries: addresses of the tables of runs and of rollouts, kept under a name."""

from __future__ import annotations

import argparse

from oc.client import Client, Kept
from oc.grammar import Grammar, Handler
from oc.show import Output

COLUMNS = ("id", "name", "query", "shared", "owner")
NOUNS: dict[str, tuple[str, Kept]] = {
    "views": ("saved views of the runs table", "/runs/views"),
    "queries": ("saved queries of the rollouts table", "/rollouts/queries"),
}


def grammar(top: Grammar) -> dict[str, Handler]:
    for noun, (words, _) in NOUNS.items():
        group = top.noun(noun, words)
        group.add("list", "yours and shared ones")
        made = group.add("save", "keep one; yours of the same name is replaced", "name")
        made.add_argument("query", help="what follows the ? of the page's address: verdict=failed&sort=-reward")
        made.add_argument("--shared", action="store_true", help="for everybody")
        group.add("delete", "delete one of yours", "id")
    return dict.fromkeys(NOUNS, _saved)


def _saved(client: Client, options: argparse.Namespace, output: Output) -> None:
    path = NOUNS[options.noun][1]
    match options.verb:
        case "list":
            output.rows(client.kept(path), COLUMNS)
        case "save":
            output.rows([client.keep(path, options.name, options.query, shared=options.shared)], COLUMNS)
        case _:
            client.forget(path, options.id)
            output.said(f"deleted {options.id}", {"deleted": options.id})
