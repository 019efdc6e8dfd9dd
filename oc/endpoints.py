"""oc endpoints: policies behind OpenAI-compatible addresses. Their keys never stand on a command line."""

from __future__ import annotations

import argparse
import getpass
import sys
from typing import Any

from oc.client import Client
from oc.everything import pair
from oc.grammar import Grammar, Handler, given, optional
from oc.launch import UsageError
from oc.show import Output

COLUMNS = ("name", "model", "url", "has_key", "effort", "price_input", "price_cached", "price_output")
WORDS = ("url", "effort")
PRICES = ("price_input", "price_cached", "price_output")
LIMITS = ("max_tokens", "max_completion_tokens")


def grammar(top: Grammar) -> dict[str, Handler]:
    group = top.noun("endpoints", "policies behind OpenAI-compatible addresses")
    group.listing("endpoints")
    group.add("show", "one of them; never its key", "name")
    made = group.add("add", "a policy behind an address, to be evaluated", "name", "url", "model")
    optional(made, "description")
    _settings(made)
    made = group.add("change", "what is named; the rest and the model stay", "name")
    made.add_argument("--url", help="base of the API, for example https://host/v1")
    _settings(made)
    made.add_argument("--no-key", action="store_true", help="forget its key")
    return {"endpoints": _endpoints}


def _settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--effort", help="sent as reasoning_effort; empty: not sent")
    parser.add_argument("--limit-field", choices=LIMITS)
    parser.add_argument("--temperature", dest="takes_temperature", action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument(
        "--parameter", action="append", metavar="name=value", help="a field more of each request; may be repeated"
    )
    for name in PRICES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, help="dollars for a million tokens")
    parser.add_argument("--key", action="store_true", help="ask for its key, or read it from standard input")


def _endpoints(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.endpoints.list(limit=options.limit), COLUMNS)
        case "show":
            output.one(client.endpoints.get(options.name))
        case "add":
            named = given(options, ("name", "url", "model", "description"))
            output.rows([client.endpoints.add(**{**_wanted(options), **named})], COLUMNS)
        case _:
            stays = client.endpoints.get(options.name).model_dump(exclude={"name", "model", "has_key"})
            output.rows([client.endpoints.change(options.name, **{**stays, **_wanted(options)})], COLUMNS)


def _wanted(options: argparse.Namespace) -> dict[str, Any]:
    """Raises UsageError."""
    found = given(options, (*WORDS, "limit_field", "takes_temperature", *PRICES))
    if options.parameter:
        found["parameters"] = dict(pair(word) for word in options.parameter)
    if getattr(options, "no_key", False):
        if options.key:
            raise UsageError("--key and --no-key: choose one")
        found["key"] = ""
    elif options.key:
        found["key"] = getpass.getpass("Key: ") if sys.stdin.isatty() else sys.stdin.readline().strip()
        if not found["key"]:
            raise UsageError("--key: standard input holds none; --no-key forgets the one that is kept")
    return found
