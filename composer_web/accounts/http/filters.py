"""Filters of the audit log, shared by page, API and CSV."""

from __future__ import annotations

from typing import Any

import django_filters as filters
from django import forms
from django.db.models import QuerySet

from composer_web.accounts.models import AuditEntry

VIA = [("page", "page"), ("api", "API, by session"), ("token", "API, by token"), ("system", "the product")]


class AuditFilter(filters.FilterSet):
    who = filters.CharFilter(field_name="actor_name", label="Who")
    action = filters.CharFilter(field_name="action", lookup_expr="startswith", label="Action begins with")
    target = filters.CharFilter(method="by_target", label="What, as run:12")
    via = filters.ChoiceFilter(choices=VIA, label="Source", empty_label="any")
    since = filters.DateFilter(
        field_name="at", lookup_expr="date__gte", label="From", widget=forms.DateInput(attrs={"type": "date"})
    )
    until = filters.DateFilter(
        field_name="at", lookup_expr="date__lte", label="To", widget=forms.DateInput(attrs={"type": "date"})
    )

    class Meta:
        model = AuditEntry
        fields = ["who", "action", "target", "via", "since", "until"]

    def by_target(self, query: QuerySet[AuditEntry], name: str, value: str) -> QuerySet[AuditEntry]:
        """`run:12` matches one object; `run` matches the kind."""
        return query.filter(target=value) if ":" in value else query.filter(target__startswith=f"{value}:")


def entries() -> QuerySet[AuditEntry]:
    """Audit entries, newest first."""
    rows: Any = AuditEntry.objects.order_by("-id")
    return rows
