"""oc policies measure: a candidate for a base model on a codebase, carried out by a worker."""

from __future__ import annotations

import argparse

from oc.client import Client
from oc.grammar import Verbs, given, optional, waits
from oc.models import MeasurementOrderOut
from oc.show import Output
from oc.waiting import Ended, until

MEASUREMENT_COLUMNS = (
    *("policy", "codebase", "bits_per_byte", "recent_bits_per_byte", "apart", "state_distance"),
    "bytes_per_second",
)
ORDER_COLUMNS = ("id", "policy", "codebase", "state", "doing", "share", "attempts", "cause")
SETTINGS = ("version", "commits", "window", "most_bytes", "items", "changes")
VERBS = ("measure", "measuring", "stop-measuring")


def grammar(policies: Verbs) -> None:
    made = policies.add("measure", "measure one on a codebase", "name")
    made.add_argument("codebase", help="environment:NAME, repository:NAME or corpus:NAME")
    optional(made, *SETTINGS, kind=int)
    optional(made, "since")
    made.add_argument("--device", choices=["auto", "cpu", "cuda"])
    waits(made, "stay until it is measured")
    made = policies.add("measuring", "what was asked for, newest first")
    made.add_argument("--limit", type=int, default=50)
    optional(made, "policy")
    policies.add("stop-measuring", "end one of these", "id")


def carry_out(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "measure":
            _measure(client, options, output)
        case "measuring":
            found = client.measurements.list(limit=options.limit, **given(options, ("policy",)))
            output.rows(found, ORDER_COLUMNS)
        case _:
            output.rows([client.measurements.stop(options.id)], ORDER_COLUMNS)


def _measure(client: Client, options: argparse.Namespace, output: Output) -> None:
    named = given(options, ("codebase", *SETTINGS, "since", "device"))
    asked = client.policies.measure(options.name, **named)
    if not options.follow:
        output.rows([asked], ORDER_COLUMNS)
        return
    ended = _ended(client, asked.id, output, timeout=options.timeout)
    if ended.state != "done":
        raise Ended(f"measurement {ended.id} is {ended.state}: {ended.cause}")
    rows = [row for row in client.policies.list_measurements(options.name) if row.policy == ended.policy]
    output.last(max(rows, key=lambda row: row.created_at), MEASUREMENT_COLUMNS)


def _ended(client: Client, pk: int, output: Output, *, timeout: float) -> MeasurementOrderOut:
    told = ""

    def look() -> MeasurementOrderOut:
        nonlocal told
        found = client.measurements.get(pk)
        if (words := found.doing or found.state) != told:
            told = words
            output.streamed(told, {"measurement": pk, "state": found.state, "doing": found.doing})
        return found

    return until(look, lambda one: one.state not in ("waiting", "running"), timeout=timeout, what=f"measurement {pk}")
