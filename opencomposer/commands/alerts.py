"""Alerts: rules, what they saw, who was told, and the webhooks that messages go to."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from opencomposer.nouns import Limit, Noun, Role, fields
from opencomposer.session import Session

PANEL = "Alerts"
ALERT_COLUMNS = ("id", "state", "rule_id", "about", "message", "opened_at", "resolved_at")
NOTICE_COLUMNS = ("id", "alert_id", "rule", "about", "resolved", "message", "created_at", "read_at")
RULE_COLUMNS = (
    "id",
    "name",
    "kind",
    "metric",
    "detector",
    "comparison",
    "threshold",
    "window",
    "role",
    "webhook_id",
    "active",
)
DELIVERY_COLUMNS = ("id", "alert_id", "webhook_id", "email", "state", "tries", "status", "error")
WEBHOOK_COLUMNS = ("id", "name", "url", "events", "active", "created_at")

Kind = Literal["metric", "finding", "run_failed", "infra_share", "worker_gone", "guard", "engine_lag", "detector"]
Pk = Annotated[int, typer.Argument(metavar="ID")]
Detector = Annotated[str | None, typer.Option(help="For rules on a built-in detector, such as zero-advantage.")]
Comparison = Annotated[Literal["above", "below"] | None, typer.Option(help="For rules on a metric.")]
Window = Annotated[int | None, typer.Option(help="Points whose mean is compared, or minutes for shares.")]
Severity = Annotated[Literal["low", "medium", "high"] | None, typer.Option(help="Least severity of findings.")]
RunName = Annotated[str | None, typer.Option(help="Only runs whose name contains this.")]
Quiet = Annotated[int | None, typer.Option(help="Minutes within which a repeated alert notifies nobody.")]
Receivers = Annotated[Role | None, typer.Option(help="Role that sees it in the product.")]
Emails = Annotated[list[str] | None, typer.Option("--email", help="Address; may be repeated.")]
WebhookId = Annotated[int | None, typer.Option("--webhook", metavar="ID", help="Webhook that gets it.")]
Events = Annotated[list[str] | None, typer.Option("--event", help="Event such as run.failed; may be repeated.")]

alerts = Noun("alerts", "What alert rules saw.", panel=PANEL)
alerts.lists("/alerts", ALERT_COLUMNS, "List alerts, newest first.", filters=("state", "kind", "rule", "about"))

notices = Noun("notices", "Your notifications.", panel=PANEL)


@notices.command("list", example="--unread")
def list_notices(
    session: Session,
    limit: Limit = 50,
    unread: Annotated[bool, typer.Option("--unread", help="Only those not marked as read.")] = False,
) -> None:
    """List your notifications, newest first."""
    found = session.api.pages("/alerts/notices", limit=limit, params={"unread": unread})
    session.output.rows(found, NOTICE_COLUMNS)


@notices.command("update", example="12")
def read_notices(
    session: Session, pk: Annotated[int | None, typer.Argument(metavar="[ID]", help="Without it: all of yours.")] = None
) -> None:
    """Mark a notification as read, or all of yours."""
    if pk is None:
        made = session.api.post("/alerts/notices/read")
    else:
        made = session.api.post("/alerts/notices/{notice_id}/read", notice_id=pk)
    session.output.rows([made], ("read",))


rules = Noun("alert-rules", "Rules that raise alerts.", panel=PANEL)
rules.lists("/alerts/rules", RULE_COLUMNS, "List alert rules.", paged=False)
rules.deletes("/alerts/rules/{rule_id}", "Delete a rule.", example="2")
rules.acts("start", "/alerts/rules/{rule_id}/{action}", RULE_COLUMNS, "Switch a rule on.", example="2", action="on")
rules.acts("stop", "/alerts/rules/{rule_id}/{action}", RULE_COLUMNS, "Switch a rule off.", example="2", action="off")


@rules.command("create", example="lost run_failed --role viewer --email team@example.org")
def create_rule(
    session: Session,
    name: str,
    kind: Kind,
    metric: str | None = None,
    detector: Detector = None,
    comparison: Comparison = None,
    threshold: float | None = None,
    window: Window = None,
    severity: Severity = None,
    run_name: RunName = None,
    quiet_minutes: Quiet = None,
    role: Receivers = None,
    email: Emails = None,
    webhook: WebhookId = None,
) -> None:
    """Create an alert rule."""
    body = fields(name=name, kind=kind, metric=metric, comparison=comparison, threshold=threshold, window=window)
    body |= fields(severity=severity, run_name=run_name, quiet_minutes=quiet_minutes, role=role)
    body |= fields(emails=email, webhook_id=webhook, detector=detector)
    session.output.rows([session.api.post("/alerts/rules", body)], RULE_COLUMNS)


@rules.command("update", example="2 --threshold 1.5")
def update_rule(
    session: Session,
    pk: Pk,
    name: str | None = None,
    kind: Kind | None = None,
    metric: str | None = None,
    detector: Detector = None,
    comparison: Comparison = None,
    threshold: float | None = None,
    window: Window = None,
    severity: Severity = None,
    run_name: RunName = None,
    quiet_minutes: Quiet = None,
    role: Receivers = None,
    email: Emails = None,
    webhook: WebhookId = None,
) -> None:
    """Change an alert rule; what is not named stays."""
    changes = fields(name=name, kind=kind, metric=metric, comparison=comparison, threshold=threshold, window=window)
    changes |= fields(severity=severity, run_name=run_name, quiet_minutes=quiet_minutes, role=role)
    changes |= fields(emails=email, webhook_id=webhook, detector=detector)
    now: dict[str, Any] = next((rule for rule in session.api.get("/alerts/rules") if rule["id"] == pk), {})
    stays = {field: value for field, value in now.items() if field not in ("id", "active", "builtin")}
    # A rule that does not exist is the API's to refuse: it names the rule.
    body = {"name": "?", "kind": "finding", **stays, **changes}
    session.output.rows([session.api.put("/alerts/rules/{rule_id}", body, rule_id=pk)], RULE_COLUMNS)


webhooks = Noun("webhooks", "Addresses that get signed messages.", panel=PANEL)
webhooks.lists("/alerts/webhooks", WEBHOOK_COLUMNS, "List webhooks.", paged=False)


@webhooks.command("create", example="ci https://ci.example.org/hook --event run.finished --event run.failed")
def create_webhook(session: Session, name: str, url: str, event: Events = None) -> None:
    """Create a webhook. Its secret is in this answer only."""
    session.output.one(session.api.post("/alerts/webhooks", fields(name=name, url=url, events=event)))


@webhooks.command("update", example="1 --event run.failed")
def update_webhook(
    session: Session,
    pk: Pk,
    name: str | None = None,
    url: str | None = None,
    event: Events = None,
    no_events: Annotated[bool, typer.Option("--no-events", help="Send no events, only alerts of rules.")] = False,
) -> None:
    """Change name, address or events of a webhook; its secret stays."""
    _change_webhook(session, pk, **fields(name=name, url=url, events=[] if no_events else event))


@webhooks.command("start", example="1")
def start_webhook(session: Session, pk: Pk) -> None:
    """Send to a webhook again."""
    _change_webhook(session, pk, active=True)


@webhooks.command("stop", example="1")
def stop_webhook(session: Session, pk: Pk) -> None:
    """Send nothing to a webhook."""
    _change_webhook(session, pk, active=False)


def _change_webhook(session: Session, pk: int, **changes: Any) -> None:
    session.output.rows([session.api.patch("/alerts/webhooks/{webhook_id}", changes, webhook_id=pk)], WEBHOOK_COLUMNS)


deliveries = Noun("deliveries", "Messages to webhooks and e-mail addresses.", panel=PANEL)
deliveries.lists("/alerts/deliveries", DELIVERY_COLUMNS, "List deliveries, newest first.")
deliveries.acts(
    "create", "/alerts/webhooks/{webhook_id}/test", DELIVERY_COLUMNS, "Send a test message to a webhook.", example="1"
)
deliveries.acts(
    "start", "/alerts/deliveries/{delivery_id}/repeat", DELIVERY_COLUMNS, "Retry a failed delivery.", example="9"
)

NOUNS = (alerts, notices, rules, webhooks, deliveries)
