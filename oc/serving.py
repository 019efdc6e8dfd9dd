"""oc promotions, gateway: which policy production serves, and what its sessions left."""

from __future__ import annotations

import argparse
import json
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel

from oc import exports, models
from oc.client import Client
from oc.everything import pair, read
from oc.grammar import Grammar, Handler, given, optional
from oc.launch import UsageError
from oc.show import Output

PROMOTION_COLUMNS = ("id", "kind", "promoted", "canary", "canary_share", "created_by", "created_at", "note")
COMPARED = ("name", "before", "now", "moved", "margin", "bound", "standing")
SESSION_COLUMNS = ("id", "client_id", "policy_name", "version", "turns", "policy_tokens", "malformed", "last_at")
SESSION_FILTERS = ("q", "policy", "version", "canary", "malformed", "signal")
DRAFT_COLUMNS = ("id", "slug", "state", "category", "rollout_id", "turn", "cause")
SIGNALS = ("accept", "reject", "edit_kept", "dissatisfied", "latency")


class Status(BaseModel):
    """What production serves and how the gateway behaves. `promoted` is null before the first promotion."""

    promoted: str | None
    canary: str | None
    canary_share: float
    settings: models.Settings


def grammar(top: Grammar) -> dict[str, Handler]:
    group = top.noun("promotions", "which policy version production serves")
    group.listing("promotions")
    made = group.add("promote", "serve a version to everybody, if the gate is open")
    made.add_argument("policy", help="name or name@version")
    optional(made, "note")
    made = group.add("canary", "give a version a share of new sessions")
    made.add_argument("policy", help="name or name@version")
    made.add_argument("share", type=float, help="more than 0 and less than 1")
    optional(made, "note")
    made = group.add("check", "whether a version would pass the gate, and what to do where not")
    made.add_argument("policy", help="name or name@version")
    group.add("watch", "the canary beside what is promoted, as recorded sessions show it")
    optional(group.add("end-canary", "serve only what is promoted"), "note")
    optional(group.add("rollback", "go back to what was promoted before"), "note")
    group.add("gate", "the rules that a version must pass")
    group.add("set-gate", "replace these rules by those of a JSON file (- is standard input)", "file")

    group = top.noun("gateway", "production sessions of the promoted policy")
    group.add("status", "what is served, and how the gateway behaves")
    made = group.add("set", "change how it behaves")
    made.add_argument(
        "values", nargs="+", metavar="name=value", help="as `status` names them: retention_days=7 canary.edit_drop=0.1"
    )
    made = group.add("sessions", "recorded sessions, newest first")
    made.add_argument("--limit", type=int, default=50)
    optional(made, *SESSION_FILTERS)
    group.add("show", "one session with its turns, signals and rewards", "id")
    made = group.add("export", "all sessions as JSON lines, written by a worker, or one as ATIF")
    made.add_argument("--session", type=int, help="its number: that one, as ATIF")
    made.add_argument("-o", "--output", default="-", help="file; - is standard output")
    made = group.add("draft", "make a draft of a task from a session", "id")
    made.add_argument("task", help="whose environment the draft gets")
    made.add_argument("slug")
    made.add_argument("instruction")
    optional(made, "category")
    group.add("delete", "delete a session", "id")
    group.add("erase", "delete every session of an end user").add_argument(
        "user", help="as the client names the user in its requests"
    )
    made = group.add("signal", "what a user did after an answer; with a token of the scope gateway")
    made.add_argument("session", help="as the client named it in its requests")
    made.add_argument("kind", choices=SIGNALS)
    optional(made, "turn", kind=int)
    optional(made, "value", kind=float)
    optional(made, "after")
    made.add_argument("--signal-id", help="your own name of it: sent twice, kept once (default: a new one)")
    made = group.add("delete-own", "delete a session that this client recorded; with a token of the scope gateway")
    made.add_argument("session", help="as the client named it in its requests")
    return {"promotions": _promotions, "gateway": _gateway}


def _promotions(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.promotions.list(limit=options.limit), PROMOTION_COLUMNS)
        case "gate":
            output.one(client.promotions.get_gate())
        case "set-gate":
            output.one(client.promotions.set_gate(read(options.file)))
        case "check":
            _checked(client.promotions.check_version(policy=options.policy), output)
        case "watch":
            _watched(client.promotions.compare_canary(), output)
        case doing:
            calls: dict[str, Callable[..., models.PromotionOut]] = {
                "promote": client.promotions.promote,
                "canary": client.promotions.start_canary,
                "end-canary": client.promotions.end_canary,
                "rollback": client.promotions.rollback,
            }
            named = given(options, [name for name in ("policy", "share", "note") if name in options])
            output.rows([calls[doing](**named)], PROMOTION_COLUMNS)


def _checked(found: models.Preview, output: Output) -> None:
    output.said(
        f"{found.policy}: {'would pass' if found.open else found.why or 'would not pass'}",
        found.model_dump(mode="json"),
    )
    for seen in [] if output.as_json else found.outcomes:
        about = seen.rule.suite or seen.rule.benchmark
        output.line(f"  {about}: {'holds' if seen.ok else f'{seen.why}; {seen.remedy}'}")


def _watched(found: models.Comparison, output: Output) -> None:
    output.said(
        f"{found.canary} has {found.share:.1%} of new sessions: {found.canary_turns} turns in {found.canary_sessions} sessions; "
        f"{found.promoted}: {found.promoted_turns} in {found.promoted_sessions}; since {found.since:%Y-%m-%d %H:%M} UTC",
        found.model_dump(mode="json"),
    )
    if not output.as_json:
        output.rows(found.rows, COMPARED)


def _nested(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """`canary.edit_drop` is `edit_drop` within `canary`."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        group, _, inner = name.partition(".")
        if inner:
            found.setdefault(group, {})[inner] = value
        else:
            found[name] = value
    return found


def _gateway(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "status":
            output.one(_status(client))
        case "set":
            output.one(client.gateway.change_settings(_nested(pair(word) for word in options.values)))
        case "sessions":
            filters = given(options, SESSION_FILTERS)
            output.rows(client.gateway.list_sessions(limit=options.limit, **filters), SESSION_COLUMNS)
        case "show":
            output.one(client.gateway.get_session(options.id))
        case "export":
            _export(client, options, output)
        case "draft":
            named = given(options, ("task", "slug", "instruction", "category"))
            output.rows([client.gateway.draft_of_session(options.id, **named)], DRAFT_COLUMNS)
        case "delete":
            client.gateway.delete_session(options.id)
            output.said(f"deleted session {options.id}", {"deleted": options.id})
        case "erase":
            output.rows([client.gateway.erase_user(user=options.user)], ("sessions",))
        case "signal":
            output.rows([_signal(client, options)], ("new", "known"))
        case _:
            client.gateway.delete_own_session(options.session)
            output.said(f"deleted session {options.session}", {"deleted": options.session})


def _status(client: Client) -> Status:
    newest = next(client.promotions.list(limit=1), None)
    return Status(
        promoted=newest.promoted if newest else None,
        canary=newest.canary if newest else None,
        canary_share=newest.canary_share if newest else 0.0,
        settings=client.gateway.get_settings(),
    )


def _signal(client: Client, options: argparse.Namespace) -> models.SignalsOut:
    if options.kind == "edit_kept" and not options.after:
        raise UsageError("edit_kept says when the edit was looked at: --after '30 minutes' or --after '2 commits'")
    signal = {"id": options.signal_id or str(uuid.uuid4()), **given(options, ("kind", "turn", "value", "after"))}
    return client.gateway.send_signals(session=options.session, signals=[signal])


def _export(client: Client, options: argparse.Namespace, output: Output) -> None:
    with exports.target(options.output, output.out) as target:
        if options.session is None:
            exports.table(client, "sessions", "", "jsonl", target)
        else:
            target.text(json.dumps(client.gateway.get_session_atif(options.session), ensure_ascii=False) + "\n")
