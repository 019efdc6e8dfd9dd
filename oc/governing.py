"""oc quotas, people, audit: how much each may use, and who changed what."""

from __future__ import annotations

import argparse
from typing import Any

from oc.client import Client
from oc.grammar import Grammar, Handler, given
from oc.launch import UsageError
from oc.show import Output

LIMITS = ("concurrent_rollouts", "storage_gib", "gpu_share", "gpus")
QUOTA_COLUMNS = ("username", "project", *LIMITS, "rollouts_now", "bytes_now", "gpus_now")
ROLES = ("viewer", "reviewer", "operator", "admin")
PEOPLE_COLUMNS = ("username", "role", "active", "projects", "email", "last_login")
INVITATION_COLUMNS = ("id", "username", "role", "project", "project_role", "email", "expires_at")
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

    group = top.noun("people", "accounts and invitations")
    group.add("list", "accounts with their roles")
    made = group.add("invite", "a link by which somebody makes an account; it works once and is told once", "username")
    made.add_argument("--role", choices=ROLES, default="viewer")
    made.add_argument("--email", default="", help="the link is sent there where a mail server is set up")
    made.add_argument("--member-of", dest="room", default="", help="short name of a project")
    made.add_argument("--member-role", choices=ROLES, default="viewer", help="in that project")
    made.add_argument("--days", type=int, default=7)
    group.add("invitations", "those that are not used yet")
    group.add("withdraw", "make the link of an invitation worth nothing", "id")
    group.add("role", "the role in the installation", "username").add_argument("role", choices=ROLES)
    group.add("disable", "end sessions and tokens of somebody, who logs in no more", "username")
    group.add("enable", "let somebody log in again", "username")

    made = top.noun("audit", "who changed what").listing("entries", *AUDIT_FILTERS)
    made.epilog = "--action run. is every change of runs; --target run:12 is that one; --since and --until are days"
    return {"quotas": _quotas, "people": _people, "audit": _audit}


def _people(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.people.list(), PEOPLE_COLUMNS)
        case "invite":
            member = {"project": options.room, "project_role": options.member_role if options.room else ""}
            asked = {"username": options.username, "role": options.role, "email": options.email, "days": options.days}
            output.one(client.people.create_invitation(**asked, **member))
        case "invitations":
            output.rows(client.people.list_invitations(), INVITATION_COLUMNS)
        case "withdraw":
            client.people.delete_invitation(options.id)
            output.said(f"invitation {options.id} is withdrawn", {"withdrawn": options.id})
        case "role":
            output.rows([client.people.change(options.username, role=options.role)], PEOPLE_COLUMNS)
        case verb:
            output.rows([client.people.change(options.username, active=verb == "enable")], PEOPLE_COLUMNS)


def _quotas(client: Client, options: argparse.Namespace, output: Output) -> None:
    if options.verb == "list":
        output.rows(client.quotas.list(), QUOTA_COLUMNS)
    else:
        output.rows([client.quotas.set(**_whom(options.whom), **given(options, LIMITS))], QUOTA_COLUMNS)


def _whom(text: str) -> dict[str, Any]:
    kind, _, name = text.partition(":")
    if text == "everybody":
        return {}
    if kind not in ("person", "project") or not name:
        raise UsageError(f"{text!r}: write person:NAME, project:NAME or everybody")
    return {"username" if kind == "person" else "project": name}


def _audit(client: Client, options: argparse.Namespace, output: Output) -> None:
    output.rows(client.audit.list_entries(limit=options.limit, **given(options, AUDIT_FILTERS)), AUDIT_COLUMNS)
