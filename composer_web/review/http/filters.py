"""Filters of annotations, shared by page, API, export and CLI."""

from __future__ import annotations

import django_filters as filters

from composer_web.review.models import Annotation, AnnotationKind
from composer_web.ui.named import RUN, NamedFilter


class AnnotationFilter(filters.FilterSet):
    kind = filters.ChoiceFilter(choices=AnnotationKind.choices, label="Kind", empty_label="any")
    value = filters.CharFilter(field_name="value", label="Verdict or tag")
    author = filters.CharFilter(field_name="author__username", label="Author")
    assignee = filters.CharFilter(field_name="assignee__username", label="Assignee")
    rollout = filters.NumberFilter(field_name="rollout_id", label="Rollout")
    run = NamedFilter(field_name="rollout__group__run_id", label="Run", **RUN)
    text = filters.CharFilter(field_name="text", lookup_expr="icontains", label="Comment")

    class Meta:
        model = Annotation
        fields = ["kind", "value", "author", "assignee", "rollout", "run", "text"]
