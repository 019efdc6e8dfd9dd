"""The filters of runs: one set for page, API, export and CLI."""

from __future__ import annotations

from typing import Any

import django_filters as filters
from django.db.models import Q, QuerySet

from composer_web.runs.models import Run, RunKind, RunState


class RunFilter(filters.FilterSet):
    q = filters.CharFilter(method="search", label="Search")
    state = filters.ChoiceFilter(choices=RunState, label="State", empty_label="any")
    kind = filters.ChoiceFilter(choices=RunKind, label="Stage", empty_label="any")
    policy = filters.CharFilter(field_name="policy_in__name", label="Starting policy")

    class Meta:
        model = Run
        fields = ["q", "state", "kind", "policy"]

    def search(self, query: QuerySet[Run], name: str, value: Any) -> QuerySet[Run]:
        found = Q(name__icontains=value)
        return query.filter(found | Q(pk=int(value)) if str(value).isdigit() and len(str(value)) < 18 else found)
