"""Filters of runs, shared by page, API, export and CLI."""

from __future__ import annotations

from typing import Any

import django_filters as filters
from django import forms
from django.db.models import Q, QuerySet

from composer_web.core.numbers import ROW_ID, whole
from composer_web.runs.models import Run, RunKind, RunState
from composer_web.ui.tables import PutAway

DATE = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")


class RunFilter(filters.FilterSet):
    """Archived runs are excluded unless `archived` includes them."""

    q = filters.CharFilter(method="search", label="Search")
    state = filters.ChoiceFilter(choices=RunState, label="State", empty_label="any")
    kind = filters.ChoiceFilter(choices=RunKind, label="Stage", empty_label="any")
    policy = filters.CharFilter(field_name="policy_in__name", label="Starting policy")
    tag = filters.CharFilter(method="tagged", label="Tag")
    by = filters.CharFilter(field_name="created_by__username", label="Created by")
    sweep = filters.NumberFilter(field_name="sweep_id", label="Sweep", min_value=1, max_value=10**ROW_ID)
    pass1 = filters.NumberFilter(lookup_expr="gte", label="Pass@1 at least", min_value=0, max_value=1)
    reward = filters.NumberFilter(lookup_expr="gte", label="Reward at least")
    since = filters.DateFilter(field_name="created_at", lookup_expr="date__gte", label="Created since", widget=DATE)
    archived = filters.ChoiceFilter(
        choices=[("only", "only these"), ("all", "shown too")],
        label="Archived",
        empty_label="hidden",
        method="put_away",
    )

    class Meta:
        model = Run
        fields = ["q", "state", "kind", "policy", "tag", "by", "sweep", "pass1", "reward", "since", "archived"]

    def filter_queryset(self, queryset: QuerySet[Run]) -> QuerySet[Run]:
        found: QuerySet[Run] = super().filter_queryset(queryset)
        return found if self.form.cleaned_data.get("archived") else found.filter(archived_at=None)

    def put_away_alone(self) -> PutAway | None:
        """Archived runs that match the other filters. None if there are none, or if the list shows them."""
        said = {name: value for name, value in self.form.cleaned_data.items() if value not in (None, "")}
        if "archived" in said:
            return None
        count = super().filter_queryset(self.queryset).exclude(archived_at=None).count()
        if not count:
            return None
        address = self.data.copy()
        address.pop("page", None)
        address["archived"] = "only"
        return PutAway(count, "run" if count == 1 else "runs", bool(said), f"?{address.urlencode()}")

    def search(self, query: QuerySet[Run], name: str, value: Any) -> QuerySet[Run]:
        found = Q(name__icontains=value) | Q(notes__icontains=value)
        pk = whole(str(value), digits=ROW_ID)
        return query.filter(found if pk is None else found | Q(pk=pk))

    def tagged(self, query: QuerySet[Run], name: str, value: Any) -> QuerySet[Run]:
        return query.filter(tags__contains=[value])

    def put_away(self, query: QuerySet[Run], name: str, value: Any) -> QuerySet[Run]:
        return query.filter(archived_at__isnull=False) if value == "only" else query
