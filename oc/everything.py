"""oc api: any operation of the API, in JSON, for what has no command of its own."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from oc.client import Client
from oc.grammar import Grammar, Handler
from oc.launch import UsageError
from oc.show import Output

VERBS = ("get", "post", "put", "patch", "delete")


def grammar(top: Grammar) -> dict[str, Handler]:
    words = "any operation of the API, by its address"
    made = top.nouns.add_parser("api", help=words, description=words, parents=[top.common])
    made.add_argument("verb", choices=VERBS)
    made.add_argument("path", help="as the description at /api/v1/docs has it, from /api/v1 on: /findings")
    made.add_argument(
        "--set", action="append", default=[], metavar="name=value", help="of the query, or of the body of a change"
    )
    made.add_argument("--body", help="file with the JSON of the body; - reads standard input")
    return {"api": _api}


def _api(client: Client, options: argparse.Namespace, output: Output) -> None:
    values = dict(pair(word) for word in options.set)
    path = "/" + options.path.removeprefix("/api/v1").lstrip("/")
    if options.verb == "get" or options.body is not None:
        body = None if options.body is None else read(options.body)
        found = client.transport.send(options.verb.upper(), path, query=values, body=body)
    else:
        found = client.transport.send(options.verb.upper(), path, body=values or None)
    output.json(found)


def pair(word: str) -> tuple[str, Any]:
    """A value that is JSON is meant as JSON: 3, true, null, ["a"]. Raises UsageError."""
    name, separator, value = word.partition("=")
    if not separator or not name:
        raise UsageError(f"{word!r}: write name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def read(file: str) -> Any:
    """Raises UsageError."""
    try:
        return json.loads(sys.stdin.read() if file == "-" else Path(file).read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} is no readable JSON: {error}") from error
