"""oc findings, forks, projects, tokens, health: what monitors saw, other continuations, rooms, keys, and how the product is."""

from __future__ import annotations

import argparse

from oc.client import Client
from oc.grammar import Grammar, Handler, given, optional
from oc.launch import UsageError
from oc.models import ProjectOut
from oc.show import Output

FINDING_COLUMNS = ("id", "severity", "rule", "state", "run_id", "rollout_id", "task", "summary", "quarantined")
FINDING_FILTERS = ("rule", "severity", "state", "subject", "run", "task", "quarantined")
RULE_COLUMNS = ("id", "version", "title", "looks_at", "hazard")
FORK_COLUMNS = ("id", "parent_id", "turn", "state", "size", "passed", "group_id", "cause")
PROJECT_COLUMNS = ("slug", "name", "role", "open", "library", "archived")
MEMBER_COLUMNS = ("username", "role", "created_at")
TOKEN_COLUMNS = ("id", "name", "prefix", "scopes", "project", "expires_at", "last_used_at", "revoked_at")
SWITCHES = {
    "open": "everybody with an account has in it at least the role of the account",
    "library": "its tasks, suites, environments and policies may be read in every project",
    "archived": "kept, and shown to nobody",
}
ROLES = ("viewer", "reviewer", "operator", "admin")


def grammar(top: Grammar) -> dict[str, Handler]:
    group = top.noun("findings", "what monitors saw in rollouts, tasks and runs")
    group.listing("findings", *FINDING_FILTERS)
    group.add("show", "one of them with its history", "id")
    group.add("rules", "the rules that look")
    group.add("audit", "look through a run again, by the rules in force").add_argument("run", type=int)
    for name in ("confirm", "dismiss", "reopen"):
        optional(group.add(name, f"{name} a finding", "id"), "note")

    group = top.noun("forks", "other continuations of a rollout")
    group.add("list", "those of a rollout", "rollout")
    made = group.add("make", "go on differently from a turn", "rollout")
    made.add_argument("turn", type=int)
    optional(made, "count", kind=int)
    optional(made, "policy")
    group.add("show", "one of them", "id")
    group.add("cancel", "stop one", "id")

    group = top.noun("projects", "rooms with members and things of their own")
    group.add("list", "those that you may look into")
    group.add("make", "a new one", "slug", "name")
    made = group.add("change", "what is named; the rest stays", "slug")
    optional(made, "name")
    for name, words in SWITCHES.items():
        made.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=None, help=words)
    group.add("members", "who is in one", "slug")
    group.add("admit", "let somebody in, or change the role", "slug", "username").add_argument("role", choices=ROLES)
    group.add("expel", "end a membership", "slug", "username")

    group = top.noun("tokens", "keys of scripts; pages alone make and revoke them")
    group.add("list", "yours")

    top.noun("health", "how the product is").add("show", "every check")
    return {
        "findings": _findings,
        "forks": _forks,
        "projects": _projects,
        "tokens": lambda client, options, output: output.rows(client.tokens.list(), TOKEN_COLUMNS),
        "health": _health,
    }


def _findings(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            found = client.findings.list(limit=options.limit, **given(options, FINDING_FILTERS))
            output.rows(found, FINDING_COLUMNS)
        case "show":
            output.one(client.findings.get(options.id))
        case "rules":
            output.rows(client.findings.list_rules(), RULE_COLUMNS)
        case "audit":
            client.findings.audit_run(run=options.run)
            output.said(f"run {options.run} is looked through", {"audited": options.run})
        case action:
            output.rows([client.findings.decide(options.id, action, **given(options, ("note",)))], FINDING_COLUMNS)


def _forks(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.forks.list(rollout=options.rollout), FORK_COLUMNS)
        case "make":
            output.rows([client.forks.create(**given(options, ("rollout", "turn", "count", "policy")))], FORK_COLUMNS)
        case "show":
            output.one(client.forks.get(options.id))
        case _:
            output.rows([client.forks.cancel(options.id)], FORK_COLUMNS)


def _projects(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.projects.list(), PROJECT_COLUMNS)
        case "make":
            output.rows([client.projects.create(slug=options.slug, name=options.name)], PROJECT_COLUMNS)
        case "change":
            output.rows([_changed(client, options)], PROJECT_COLUMNS)
        case "members":
            output.rows(client.projects.list_members(options.slug), MEMBER_COLUMNS)
        case "admit":
            made = client.projects.set_member(options.slug, username=options.username, role=options.role)
            output.rows([made], MEMBER_COLUMNS)
        case _:
            members = client.projects.list_members(options.slug)
            role = next((one.role for one in members if one.username == options.username), "viewer")
            client.projects.remove_member(options.slug, username=options.username, role=role)
            output.said(f"{options.username} is out of {options.slug}", {"removed": options.username})


def _changed(client: Client, options: argparse.Namespace) -> ProjectOut:
    """Raises UsageError."""
    known = {one.slug: one for one in client.projects.list()}
    if options.slug not in known:
        raise UsageError(f"you may look into no project {options.slug!r}; into: {', '.join(known)}")
    names = ("name", *SWITCHES)
    stays = known[options.slug].model_dump(include=set(names))
    return client.projects.change(options.slug, **{**stays, **given(options, names)})


def _health(client: Client, options: argparse.Namespace, output: Output) -> None:
    found = client.health.get()
    if output.as_json:
        output.one(found)
    else:
        output.rows(found.checks, ("name", "ok", "message", "seconds"))
