"""oc alerts, webhooks: what is wrong, who is told, and what was sent outside."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from oc import models
from oc.client import Client
from oc.grammar import Grammar, Handler, given, optional
from oc.show import Output

ALERT_COLUMNS = ("id", "state", "rule_id", "about", "message", "opened_at", "resolved_at")
NOTICE_COLUMNS = ("id", "alert_id", "rule", "about", "resolved", "message", "created_at", "read_at")
RULE_COLUMNS = ("id", "name", "kind", "metric", "comparison", "threshold", "window", "role", "webhook_id", "active")
DELIVERY_COLUMNS = ("id", "alert_id", "webhook_id", "email", "state", "tries", "status", "error")
WEBHOOK_COLUMNS = ("id", "name", "url", "events", "active", "created_at")
EVENTS = get_args(get_args(models.WebhookOut.model_fields["events"].annotation)[0])
FILTERS = ("state", "kind", "rule", "about")
KINDS = ("metric", "finding", "run_failed", "infra_share", "worker_gone", "guard")
RULE = (
    *("name", "kind", "metric", "comparison", "threshold", "window", "severity", "run_name", "quiet_minutes"),
    *("role", "emails", "webhook_id"),
)


def grammar(top: Grammar) -> dict[str, Handler]:
    group = top.noun("alerts", "what rules saw, and who was told")
    group.listing("alerts", *FILTERS)
    made = group.add("notices", "what you were told, newest first")
    made.add_argument("--limit", type=int, default=50)
    made.add_argument("--unread", action="store_true", help="only what you have not marked as read")
    made = group.add("ack", "mark a notice as read, or all of yours")
    made.add_argument("notice", type=int, nargs="?")
    group.add("rules", "the rules")
    made = group.add("create", "make a rule", "name")
    made.add_argument("kind", choices=KINDS)
    optional(made, "metric", "run_name")
    _limits(made)
    for name, words in (("on", "have a rule watch again"), ("off", "switch a rule off"), ("remove", "remove a rule")):
        group.add(name, words, "id")
    made = group.add("change", "other fields of a rule; what is not named stays", "id")
    optional(made, "name", "metric", "run_name")
    made.add_argument("--kind", choices=KINDS)
    _limits(made)
    group.add("deliveries", "messages to addresses outside").add_argument("--limit", type=int, default=50)
    group.add("repeat", "try a failed delivery again", "id")

    group = top.noun("webhooks", "addresses that get signed messages")
    group.add("list", "all of them")
    made = group.add("add", "a new one; its secret is in this one answer only", "name", "url")
    made.add_argument("--events", nargs="+", choices=EVENTS, metavar="EVENT", help=", ".join(EVENTS))
    made = group.add("events", "have it told of these events and no others", "id")
    made.add_argument("events", nargs="*", metavar="EVENT", help=", ".join(EVENTS))
    optional(group.add("change", "another name or address; its secret stays", "id"), "name", "url")
    for name, words in (("on", "send to it again"), ("off", "send it nothing"), ("test", "send it a test message")):
        group.add(name, words, "id")
    return {"alerts": _alerts, "webhooks": _webhooks}


def _limits(made: argparse.ArgumentParser) -> None:
    """What a rule compares, and whom it tells."""
    made.add_argument("--comparison", choices=["above", "below"])
    optional(made, "threshold", kind=float)
    made.add_argument("--window", type=int, help="points whose mean is compared, or minutes for shares")
    made.add_argument("--severity", choices=["low", "medium", "high"], help="least of findings")
    made.add_argument("--quiet-minutes", type=int, help="an alert that comes back sooner tells nobody")
    made.add_argument("--role", choices=["viewer", "reviewer", "operator", "admin"], help="who sees it in the product")
    made.add_argument("--emails", nargs="*")
    made.add_argument("--webhook", type=int, dest="webhook_id", help="number of a webhook")


def _alerts(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.alerts.list(limit=options.limit, **given(options, FILTERS)), ALERT_COLUMNS)
        case "notices":
            output.rows(client.alerts.list_notices(limit=options.limit, unread=options.unread), NOTICE_COLUMNS)
        case "ack":
            output.rows([_read(client, options.notice)], ("read",))
        case "rules":
            output.rows(client.alerts.list_rules(), RULE_COLUMNS)
        case "create":
            output.rows([client.alerts.create_rule(**given(options, RULE))], RULE_COLUMNS)
        case "change":
            output.rows([client.alerts.replace_rule(options.id, **_changed(client, options))], RULE_COLUMNS)
        case "remove":
            client.alerts.remove_rule(options.id)
            output.said(f"removed rule {options.id}", {"removed": options.id})
        case "deliveries":
            output.rows(client.alerts.list_deliveries(limit=options.limit), DELIVERY_COLUMNS)
        case "repeat":
            output.rows([client.alerts.repeat_delivery(options.id)], DELIVERY_COLUMNS)
        case switched:
            output.rows([client.alerts.switch_rule(options.id, switched)], RULE_COLUMNS)


def _read(client: Client, notice: int | None) -> models.ReadOut:
    """One of your notices, or all."""
    return client.alerts.read_notices() if notice is None else client.alerts.read_notice(notice)


def _changed(client: Client, options: argparse.Namespace) -> dict[str, Any]:
    """The whole rule: what is not named stays. A rule that is not there is the API's to refuse."""
    rule = next((rule for rule in client.alerts.list_rules() if rule.id == options.id), None)
    now = {} if rule is None else rule.model_dump(mode="json", exclude={"id", "active"})
    return {"name": "?", "kind": "finding", **now, **given(options, RULE)}


def _webhooks(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.alerts.list_webhooks(), WEBHOOK_COLUMNS)
        case "add":
            output.one(client.alerts.create_webhook(**given(options, ("name", "url", "events"))))
        case "change":
            output.rows([client.alerts.change_webhook(options.id, **given(options, ("name", "url")))], WEBHOOK_COLUMNS)
        case "events":
            output.rows([client.alerts.change_webhook(options.id, events=options.events)], WEBHOOK_COLUMNS)
        case "test":
            output.rows([client.alerts.try_webhook(options.id)], DELIVERY_COLUMNS)
        case switched:
            output.rows([client.alerts.change_webhook(options.id, active=switched == "on")], WEBHOOK_COLUMNS)
