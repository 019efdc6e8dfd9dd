"""The filters of evaluations: one set for page, API, export and CLI."""

from __future__ import annotations

import django_filters as filters

from composer_web.evals.models import Evaluation, EvaluationState, Phase


class EvaluationFilter(filters.FilterSet):
    run = filters.NumberFilter(field_name="run_id", label="Run")
    policy = filters.CharFilter(field_name="policy__name", label="Policy")
    suite = filters.CharFilter(field_name="suite__name", label="Suite")
    phase = filters.ChoiceFilter(choices=Phase, label="Phase", empty_label="any")
    state = filters.ChoiceFilter(choices=EvaluationState, label="State", empty_label="any")

    class Meta:
        model = Evaluation
        fields = ["run", "policy", "suite", "phase", "state"]
