"""oc views, queries: addresses of the tables of runs and of rollouts, kept under a name."""

from __future__ import annotations

import argparse

from oc.client import Client
from oc.grammar import Grammar, Handler, given
from oc.show import Output

COLUMNS = ("id", "name", "query", "shared", "owner")
NOUNS = {"views": "saved views of the runs table", "queries": "saved queries of the rollouts table"}
NAMED = ("name", "query", "shared")


def grammar(top: Grammar) -> dict[str, Handler]:
    for noun, words in NOUNS.items():
        group = top.noun(noun, words)
        group.add("list", "yours and shared ones")
        made = group.add("save", "keep one; yours of the same name is replaced", "name")
        made.add_argument("query", help="what follows the ? of the page's address: verdict=failed&sort=-reward")
        made.add_argument("--shared", action="store_true", help="for everybody")
        group.add("delete", "delete one of yours", "id")
    return {"views": _views, "queries": _queries}


def _views(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.runs.list_views(), COLUMNS)
        case "save":
            output.rows([client.runs.save_view(**given(options, NAMED))], COLUMNS)
        case _:
            client.runs.delete_view(options.id)
            output.said(f"deleted {options.id}", {"deleted": options.id})


def _queries(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.rollouts.list_queries(), COLUMNS)
        case "save":
            output.rows([client.rollouts.save_query(**given(options, NAMED))], COLUMNS)
        case _:
            client.rollouts.delete_query(options.id)
            output.said(f"deleted {options.id}", {"deleted": options.id})
