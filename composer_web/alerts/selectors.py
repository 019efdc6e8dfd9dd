"""Read queries of alerts."""

from __future__ import annotations

from django.db.models import Count, Q, QuerySet

from composer_web.accounts.models import User
from composer_web.alerts.models import Alert, Delivery, Notice, Rule, Webhook
from composer_web.core.errors import NotFound


def alerts() -> QuerySet[Alert]:
    return Alert.objects.select_related("rule")


def rules() -> QuerySet[Rule]:
    counted = Rule.objects.annotate(open_alerts=Count("alerts", filter=Q(alerts__resolved_at=None)))
    return counted.select_related("webhook").order_by("name")  # grouped queries have no order of their own


def get_rule(pk: int) -> Rule:
    """Raises NotFound."""
    found = Rule.objects.filter(pk=pk).first()
    if found is None:
        raise NotFound("alert rule", pk)
    return found


def webhooks() -> QuerySet[Webhook]:
    return Webhook.objects.order_by("name")


def get_webhook(pk: int) -> Webhook:
    """Raises NotFound."""
    found = Webhook.objects.filter(pk=pk).first()
    if found is None:
        raise NotFound("webhook", pk)
    return found


def deliveries() -> QuerySet[Delivery]:
    return Delivery.objects.select_related("webhook", "alert__rule")


def get_delivery(pk: int) -> Delivery:
    """Raises NotFound."""
    found = deliveries().filter(pk=pk).first()
    if found is None:
        raise NotFound("delivery", pk)
    return found


def notices(user: User, *, unread: bool = False) -> QuerySet[Notice]:
    rows = Notice.objects.filter(user=user).select_related("alert__rule")
    return rows.filter(read_at=None) if unread else rows


def get_notice(user: User, pk: int) -> Notice:
    """One of the person's own. Raises NotFound."""
    found = notices(user).filter(pk=pk).first()
    if found is None:
        raise NotFound("notice", pk)
    return found


def unread(user: User) -> int:
    return Notice.objects.filter(user=user, read_at=None).count()
