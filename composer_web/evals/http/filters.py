"""Filters of evaluations, shared by page, API, export and CLI."""

from __future__ import annotations

import django_filters as filters

from composer_web.core.numbers import COUNT
from composer_web.evals.models import Evaluation, EvaluationState, Phase, Release
from composer_web.ui.named import RUN, NamedFilter


class EvaluationFilter(filters.FilterSet):
    run = NamedFilter(field_name="run_id", label="Run", **RUN)
    policy = filters.CharFilter(field_name="policy__name", label="Policy")
    suite = filters.CharFilter(field_name="suite__name", label="Suite")
    phase = filters.ChoiceFilter(choices=Phase, label="Phase", empty_label="any")
    state = filters.ChoiceFilter(choices=EvaluationState, label="State", empty_label="any")

    class Meta:
        model = Evaluation
        fields = ["run", "policy", "suite", "phase", "state"]


class LeaderboardFilter(filters.FilterSet):
    benchmark = filters.CharFilter(field_name="benchmark", label="Benchmark")
    release = filters.NumberFilter(field_name="number", label="Release", min_value=1, max_value=10**COUNT)

    class Meta:
        model = Release
        fields = ["benchmark", "release"]
