"""The filters of recorded sessions."""

from __future__ import annotations

import django_filters as filters

from composer_web.gateway.models import Session


class SessionFilter(filters.FilterSet):
    q = filters.CharFilter(field_name="opening", lookup_expr="icontains", label="Begins with")
    policy = filters.CharFilter(field_name="policy__name", label="Policy")
    version = filters.NumberFilter(field_name="version", label="Version")
    canary = filters.ChoiceFilter(choices=[("True", "yes"), ("False", "no")], label="Canary", empty_label="any")
    malformed = filters.NumberFilter(field_name="malformed", lookup_expr="gte", label="Malformed tool calls ≥")
    signal = filters.ChoiceFilter(
        field_name="signals__kind",
        choices=[
            (kind, kind.replace("_", " ")) for kind in ("accept", "reject", "edit_kept", "dissatisfied", "latency")
        ],
        label="Signal",
        empty_label="any",
        distinct=True,
    )

    class Meta:
        model = Session
        fields = ["q", "policy", "version", "canary", "malformed", "signal"]
