"""Events: a signed message to every subscribed webhook, written in the transaction of the event."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from composer_web.accounts.models import Project
from composer_web.alerts.models import Alert, Delivery, Event, Webhook
from composer_web.alerts.sending import send
from composer_web.env import env


def subscribed(event: Event) -> list[Webhook]:
    return list(Webhook.objects.filter(active=True, events__contains=[event.value]))


def tell(
    event: Event, *, title: str, message: str, about: str, path: str, project: int | None = None, **facts: Any
) -> list[Delivery]:
    """One delivery a webhook. `about` is as in the audit log (run:12), `path` the page that the link leads to, `project` the
    number of its project (None: the installation's), which the message names by its short name."""
    hooks = subscribed(event)
    if not hooks:
        return []
    slug = Project.objects.values_list("slug", flat=True).get(pk=project) if project is not None else None
    body = written(event, title=title, message=message, about=about, path=path, project=slug, **facts)
    return [send(Delivery(webhook=hook, body=body)) for hook in hooks]


def written(event: Event, *, title: str, message: str, about: str, path: str, **facts: Any) -> dict[str, Any]:
    """The body of a message."""
    base = env().public_url.rstrip("/")
    told = {"type": event.value, "title": title, "message": message, "about": about}
    return {**told, **facts, "link": f"{base}{path}" if base else "", "at": timezone.now().isoformat()}


def tell_of_alert(alert: Alert, *, resolved: bool) -> list[Delivery]:
    """To the addresses and the webhook of its rule, and to the webhooks that are told of all alerts; each once."""
    rule, event = alert.rule, Event.ALERT_RESOLVED if resolved else Event.ALERT_OPENED
    body = written(
        event,
        title=f"{'Resolved: ' if resolved else ''}{rule.name}",
        message=alert.message,
        about=alert.about,
        path="/alerts/",
        rule=rule.name,
        alert=alert.pk,
    )
    body["at"] = ((alert.resolved_at if resolved else alert.opened_at) or timezone.now()).isoformat()
    hooks = {hook.pk: hook for hook in subscribed(event)}
    if rule.webhook is not None and rule.webhook.active:
        hooks[rule.webhook.pk] = rule.webhook
    made = [Delivery(alert=alert, email=email, body=body) for email in rule.emails]
    made += [Delivery(alert=alert, webhook=hook, body=body) for _, hook in sorted(hooks.items())]
    return [send(row) for row in made]
