"""Filters of alerts, shared by page and API."""

from __future__ import annotations

import django_filters as filters
from django.db.models import QuerySet

from composer_web.alerts.models import Alert, Kind


class AlertFilter(filters.FilterSet):
    state = filters.ChoiceFilter(
        choices=[("open", "open"), ("resolved", "resolved")], method="by_state", label="State", empty_label="any"
    )
    kind = filters.ChoiceFilter(field_name="rule__kind", choices=Kind.choices, label="Watches", empty_label="any")
    rule = filters.NumberFilter(field_name="rule_id", label="Rule")
    about = filters.CharFilter(field_name="about", lookup_expr="startswith", label="About, as run:12")

    class Meta:
        model = Alert
        fields = ["state", "kind", "rule", "about"]

    def by_state(self, query: QuerySet[Alert], name: str, value: str) -> QuerySet[Alert]:
        return query.filter(resolved_at__isnull=value == "open")
