"""Tables of alerts and deliveries."""

from __future__ import annotations

from typing import ClassVar

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html

from composer_web.accounts.http.tables import PLACES
from composer_web.alerts.models import Alert, Delivery
from composer_web.ui.tables import STRONG, AgoColumn, NumberColumn, StateColumn, Table
from composer_web.ui.templatetags import ui


class AlertTable(Table):
    help: ClassVar = {"about": "Run, worker or channel that the rule watches."}
    state = StateColumn("alert", empty_values=(), orderable=False)
    rule = tables.Column(accessor="rule__name", verbose_name="Rule", attrs=STRONG, orderable=False)
    about = tables.Column(orderable=False)
    message = tables.Column(orderable=False, attrs={"td": {"class": "long"}})
    opened_at = AgoColumn(verbose_name="Since", orderable=False)
    resolved_at = AgoColumn(verbose_name="Until", orderable=False)

    empty_template = "alerts/empty.html"

    class Meta:
        model = Alert
        fields = ("state", "rule", "about", "message", "opened_at", "resolved_at")

    def render_state(self, record: Alert) -> str:
        quiet = "" if record.told_at else ", quiet"
        return ui.badge("failed" if record.state == "open" else "ok", record.state + quiet)

    def render_about(self, value: str) -> str:
        """In words, with a link to it: `run:12` is run 12."""
        kind, _, key = value.partition(":")
        words = value.replace(":", " ", 1)
        if kind in PLACES and key.isdigit():
            return format_html('<a href="{}">{}</a>', PLACES[kind].format(key), words)
        if kind == "worker":
            return format_html('<a href="{}">{}</a>', reverse("ops:system"), words)
        if kind == "channel":
            return format_html('<a href="{}">{}</a>', reverse("policies:promotion"), words)
        return words


class DeliveryTable(Table):
    help: ClassVar = {
        "to": "Address or webhook.",
        "tries": "Attempts to send it so far.",
        "status": "HTTP status of the last answer of the webhook.",
    }
    created_at = AgoColumn(verbose_name="Created", orderable=False)
    to = tables.Column(empty_values=(), orderable=False, attrs=STRONG)
    title = tables.Column(accessor="body__title", default="–", orderable=False, verbose_name="Message")
    state = StateColumn("delivery", orderable=False)
    tries = NumberColumn(orderable=False)
    status = NumberColumn(orderable=False, verbose_name="HTTP")
    error = tables.Column(orderable=False, attrs={"td": {"class": "long"}})
    again = tables.TemplateColumn(
        '{% if record.state == "failed" %}<form method="post" action="{% url \'alerts:delivery-repeat\' record.pk %}">'
        '{% csrf_token %}<button class="button button--small">Try again</button></form>{% endif %}',
        verbose_name="Again",
        orderable=False,
    )

    empty_template = "alerts/deliveries_empty.html"

    class Meta:
        model = Delivery
        fields = ("created_at", "to", "title", "state", "tries", "status", "error", "again")

    def render_to(self, record: Delivery) -> str:
        return record.email or str(record.webhook)

    def render_state(self, record: Delivery) -> str:
        tone = {"sent": "ok", "failed": "failed", "waiting": "late"}[record.state]
        return ui.badge(tone, record.state)
