"""The filters of tasks: one set for page, API, export and CLI."""

from __future__ import annotations

from typing import get_args

import django_filters as filters

from composer_web.ops.filters import slug_contains
from composer_web.tasks.models import Task
from sandbox.tasks.spec import Category, TaskSource

CONTROLS = [("true", "passed"), ("false", "rejected"), ("none", "not run")]
SOURCES = [(name, name) for name in get_args(TaskSource)]
CATEGORIES = [(name, name) for name in get_args(Category)]


class TaskFilter(filters.FilterSet):
    q = filters.CharFilter(field_name="slug", method=slug_contains, label="Search")
    source = filters.ChoiceFilter(choices=SOURCES, label="Source", empty_label="any")
    category = filters.ChoiceFilter(choices=CATEGORIES, label="Category", empty_label="any")
    suite = filters.CharFilter(field_name="versions__suites__name", label="Suite", distinct=True)
    controls = filters.ChoiceFilter(choices=CONTROLS, method="by_controls", label="Controls", empty_label="any")
    strength_max = filters.NumberFilter(
        field_name="test_strength", lookup_expr="lte", label="Test strength at most", min_value=0, max_value=1
    )

    class Meta:
        model = Task
        fields = ["q", "source", "category", "suite", "controls", "strength_max"]

    def by_controls(self, query, name, value):  # type: ignore[no-untyped-def]
        wanted = {"true": True, "false": False, "none": None}[value]
        return query.filter(controls_ok__isnull=True) if wanted is None else query.filter(controls_ok=wanted)
