"""oc quotas, audit: how much each may use, and who changed what."""

from __future__ import annotations

import argparse

from oc.client import Client, Json
from oc.grammar import Grammar, Handler, given
from oc.installation import Installation
from oc.launch import UsageError
from oc.show import Output

LIMITS = ("concurrent_rollouts", "storage_gib", "gpu_share", "gpus")
QUOTA_COLUMNS = ("username", "project", *LIMITS, "rollouts_now", "bytes_now", "gpus_now")
AUDIT_COLUMNS = ("id", "at", "actor_name", "via", "action", "target", "detail")
AUDIT_FILTERS = ("who", "action", "target", "via", "since", "until")


def grammar(top: Grammar) -> dict[str, Handler]:
    group = top.noun("quotas", "how much each person and project may use")
    group.add("list", "limits and what is used of them")
    made = group.add("set", "replace the limits of one; what is not named has no limit, without any the quota is gone")
    made.add_argument("whom", help="person:NAME, project:NAME or everybody (who has none of his own)")
    made.add_argument("--concurrent-rollouts", type=int, help="in flight")
    made.add_argument("--storage-gib", type=float, help="of kept checkpoints")
    made.add_argument("--gpu-share", type=float, help="of all rollouts in flight while others run, between 0 and 1")
    made.add_argument("--gpus", type=int, help="trained on at once")

    made = top.noun("audit", "who changed what").listing("entries", *AUDIT_FILTERS)
    made.epilog = "--action run. is every change of runs; --target run:12 is that one; --since and --until are days"
    return {"quotas": _quotas, "audit": _audit}


def _quotas(client: Client, options: argparse.Namespace, output: Output) -> None:
    calls = Installation(client)
    if options.verb == "list":
        output.rows(calls.quotas(), QUOTA_COLUMNS)
    else:
        output.rows([calls.set_quota({**_whom(options.whom), **given(options, LIMITS)})], QUOTA_COLUMNS)


def _whom(text: str) -> Json:
    kind, _, name = text.partition(":")
    if text == "everybody":
        return {}
    if kind not in ("person", "project") or not name:
        raise UsageError(f"{text!r}: write person:NAME, project:NAME or everybody")
    return {"username" if kind == "person" else "project": name}


def _audit(client: Client, options: argparse.Namespace, output: Output) -> None:
    output.rows(Installation(client).audit(limit=options.limit, **given(options, AUDIT_FILTERS)), AUDIT_COLUMNS)
