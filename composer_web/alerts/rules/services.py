"""Writes of alerts: rules, webhooks, and the state of raised alerts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from composer_web.accounts.models import Role, User
from composer_web.accounts.permissions import may_in, with_places
from composer_web.accounts.services import audit
from composer_web.alerts import signing
from composer_web.alerts.models import Alert, Delivery, Event, Kind, Notice, Rule, Webhook
from composer_web.alerts.sending import PURPOSE, send, send_later
from composer_web.alerts.telling import tell_of_alert
from composer_web.core import detectors
from composer_web.core.encryption import seal
from composer_web.core.errors import UserError
from composer_web.core.network import safe_http
from composer_web.live.hints import hint
from composer_web.runs.models import Run
from sandbox.network.guard import Refused

MAX_EMAILS = 20
WATCHED = ("kind", "metric", "detector", "comparison", "threshold", "window", "severity", "run_name")
"""Fields of a rule that say what it looks for."""


@transaction.atomic
def make_rule(*, actor: User | None, **fields: Any) -> Rule:
    """Raises UserError that names the field."""
    rule = Rule(created_by=actor, **_checked(fields))
    _cleaned(rule)
    rule.save()
    audit(actor=actor, action="alert_rule.create", target=f"alert_rule:{rule.pk}", name=rule.name)
    hint("alerts")
    return rule


@transaction.atomic
def change_rule(*, rule: Rule, actor: User | None, **fields: Any) -> Rule:
    """These fields from now on. Where what it watches is another thing, its open alerts are resolved: they say what the
    rule said before. Raises UserError that names the field."""
    row = Rule.objects.select_for_update().get(pk=rule.pk)
    for name, value in _checked({**_fields(row), **fields}).items():
        setattr(row, name, value)
    _cleaned(row)
    before = Rule.objects.get(pk=row.pk)
    row.save()
    if any(getattr(row, name) != getattr(before, name) for name in WATCHED):
        Alert.objects.filter(rule=row, resolved_at=None).update(resolved_at=timezone.now())
    audit(actor=actor, action="alert_rule.change", target=f"alert_rule:{row.pk}", name=row.name)
    hint("alerts")
    return row


def _fields(row: Rule) -> dict[str, Any]:
    return {name: getattr(row, name) for name in (*WATCHED, "name", "quiet_minutes", "role", "emails", "webhook")}


@transaction.atomic
def switch_rule(*, rule: Rule, active: bool, actor: User | None) -> Rule:
    """Off: its open alerts are resolved, for nobody looks any more."""
    rule.active = active
    rule.save(update_fields=["active"])
    if not active:
        Alert.objects.filter(rule=rule, resolved_at=None).update(resolved_at=timezone.now())
    audit(actor=actor, action="alert_rule.on" if active else "alert_rule.off", target=f"alert_rule:{rule.pk}")
    hint("alerts")
    return rule


@transaction.atomic
def remove_rule(*, rule: Rule, actor: User | None) -> None:
    """With its alerts and their deliveries; what was told stays in the audit log as the rule's name. Raises UserError for a
    rule that ships with the product."""
    if rule.builtin:
        raise UserError("", f"“{rule.name}” ships with the product: switch it off instead", code="conflict")
    target = f"alert_rule:{rule.pk}"
    rule.delete()
    audit(actor=actor, action="alert_rule.remove", target=target, name=rule.name)
    hint("alerts")


@transaction.atomic
def make_webhook(*, actor: User | None, name: str, url: str, events: Iterable[str] = ()) -> tuple[Webhook, str]:
    """The webhook and its secret, which is shown this one time. Raises UserError."""
    _named(name, Webhook.objects.all())
    _reachable(url)
    secret = signing.new_secret()
    sealed = seal(secret, purpose=PURPOSE)
    row = Webhook(name=name.strip(), url=url.strip(), secret=sealed, events=_events(events), created_by=actor)
    _cleaned(row)
    row.save()
    audit(actor=actor, action="webhook.create", target=f"webhook:{row.pk}", name=row.name, url=row.url)
    return row, secret


@transaction.atomic
def change_webhook(*, webhook: Webhook, actor: User | None, name: str | None = None, url: str | None = None) -> Webhook:
    """Another name or address; its secret stays. What still waits goes to the new address. Raises UserError."""
    row = Webhook.objects.select_for_update().get(pk=webhook.pk)
    if name is not None:
        _named(name, Webhook.objects.exclude(pk=row.pk))
        row.name = name.strip()
    if url is not None and url.strip() != row.url:
        _reachable(url)
        row.url = url.strip()
    _cleaned(row)
    row.save(update_fields=["name", "url"])
    audit(actor=actor, action="webhook.change", target=f"webhook:{row.pk}", name=row.name, url=row.url)
    return row


def _named(name: str, others: QuerySet[Webhook]) -> None:
    if not name.strip() or others.filter(name=name.strip()).exists():
        raise UserError("name", "give it a name that no other webhook has")


def _reachable(url: str) -> None:
    try:
        safe_http.check(url, safe_http.webhooks())
    except (Refused, safe_http.Unreachable) as error:
        raise UserError("url", str(error)) from error


@transaction.atomic
def switch_webhook(*, webhook: Webhook, active: bool, actor: User | None) -> Webhook:
    webhook.active = active
    webhook.save(update_fields=["active"])
    audit(actor=actor, action="webhook.on" if active else "webhook.off", target=f"webhook:{webhook.pk}")
    return webhook


@transaction.atomic
def subscribe(*, webhook: Webhook, events: Iterable[str], actor: User | None) -> Webhook:
    """Have it told of these events, and of no others. Raises UserError."""
    webhook.events = _events(events)
    webhook.save(update_fields=["events"])
    audit(actor=actor, action="webhook.events", target=f"webhook:{webhook.pk}")
    return webhook


@transaction.atomic
def try_webhook(*, webhook: Webhook, actor: User | None) -> Delivery:
    """A message that says that it is a test."""
    body = {"type": "test", "title": "Test", "message": "A person asked OpenComposer for this message."}
    made = send(Delivery(webhook=webhook, body=body))
    audit(actor=actor, action="webhook.test", target=f"webhook:{webhook.pk}")
    return made


@transaction.atomic
def repeat(*, delivery: Delivery, actor: User | None) -> Delivery:
    """Try a failed delivery again, from the beginning of its pauses. Raises UserError."""
    row = Delivery.objects.select_for_update().get(pk=delivery.pk)
    if row.state != Delivery.State.FAILED:
        raise UserError("", f"only a failed delivery is tried again; this one is {row.state}", code="conflict")
    row.state, row.tries, row.due_at = Delivery.State.WAITING, 0, timezone.now()
    row.save(update_fields=["state", "tries", "due_at"])
    send_later(row)
    audit(actor=actor, action="delivery.repeat", target=f"delivery:{row.pk}")
    return row


@transaction.atomic
def saw(*, rule: Rule, about: str, message: str) -> Alert:
    """The rule's condition holds for `about`. Tells people once: not again while it goes on, and not when it was
    told within the rule's quiet time."""
    now = timezone.now()
    last = Alert.objects.select_for_update().filter(rule=rule, about=about).order_by("-pk").first()
    if last is not None and last.resolved_at is None:
        last.seen_at, last.message = now, message[:2000]
        last.save(update_fields=["seen_at", "message"])
        return last
    alert = Alert.objects.create(
        rule=rule, about=about, message=message[:2000], step=_step(about), opened_at=now, seen_at=now
    )
    told = Alert.objects.filter(rule=rule, about=about).exclude(told_at=None).order_by("-told_at").first()
    if told is None or told.told_at is None or now - told.told_at >= timedelta(minutes=rule.quiet_minutes):
        alert.told_at = now
        alert.save(update_fields=["told_at"])
        _tell(alert, resolved=False)
    hint("alerts", *([] if alert.step is None else [about]))  # who watches the run sees the mark on its charts
    return alert


@transaction.atomic
def over(*, alert: Alert) -> Alert:
    """The condition holds no more. Whoever was told of the beginning is told of the end."""
    row = Alert.objects.select_for_update().select_related("rule").get(pk=alert.pk)
    if row.resolved_at is None:
        row.resolved_at = timezone.now()
        row.save(update_fields=["resolved_at"])
        if row.told_at is not None:
            _tell(row, resolved=True)
        hint("alerts")
    return row


@transaction.atomic
def mark_read(*, user: User, notice: int | None = None) -> int:
    """One of the person's notices, or all of them."""
    rows = Notice.objects.filter(user=user, read_at=None)
    done = (rows if notice is None else rows.filter(pk=notice)).update(read_at=timezone.now())
    hint("alerts")
    return done


def _step(about: str) -> int | None:
    """Where a run stands; None for what is about something else."""
    kind, _, pk = about.partition(":")
    return Run.objects.filter(pk=int(pk)).values_list("step", flat=True).first() if kind == "run" else None


def _tell(alert: Alert, *, resolved: bool) -> None:
    rule = alert.rule
    alert.refresh_from_db(fields=["project"])  # a trigger knows it
    people = [
        user for user in with_places(User.objects.filter(is_active=True)) if may_in(user, alert.project_id, rule.role)
    ]
    Notice.objects.bulk_create(
        [Notice(user=user, alert=alert, resolved=resolved) for user in people], ignore_conflicts=True
    )
    tell_of_alert(alert, resolved=resolved)


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    found = dict(fields)
    if found.get("kind") == Kind.METRIC and not str(found.get("metric", "")).strip():
        raise UserError("metric", "name the metric to watch, for example reward/mean")
    if found.get("kind") == Kind.DETECTOR and detectors.detector(str(found.get("detector", ""))) is None:
        known = ", ".join(one.name for one in detectors.detectors())
        raise UserError("detector", f"name a detector; there are: {known}")
    if not math.isfinite(float(found.get("threshold", 0.0))):
        raise UserError("threshold", "the threshold is a number")
    if found.get("kind") == Kind.INFRA_SHARE and not 0 <= float(found.get("threshold", 0.0)) < 1:
        raise UserError("threshold", "a share is at least 0 and less than 1")
    found["emails"] = _emails(found.get("emails", []))
    if found.get("role", Role.OPERATOR) not in Role.values:
        raise UserError("role", f"the role is one of {', '.join(Role.values)}")
    return found


def _emails(given: Iterable[str]) -> list[str]:
    emails = sorted({email.strip() for email in given if email.strip()})
    if len(emails) > MAX_EMAILS:
        raise UserError("emails", f"at most {MAX_EMAILS} addresses; use a list of your mail server")
    for email in emails:
        try:
            validate_email(email)
        except ValidationError as error:
            raise UserError("emails", f"{email[:80]!r} is no e-mail address") from error
    return emails


def _events(given: Iterable[str]) -> list[str]:
    """In the order in which they are defined, each once."""
    asked = {str(one) for one in given}
    if unknown := sorted(asked - set(Event.values)):
        raise UserError("events", f"there is no event {unknown[0][:40]!r}; there are: {', '.join(Event.values)}")
    return [one for one in Event.values if one in asked]


def _cleaned(row: Rule | Webhook) -> None:
    try:
        row.full_clean()
    except ValidationError as error:
        field, problems = next(iter(error.message_dict.items()))
        raise UserError(field, f"{field}: {problems[0]}") from error
