"""`{% curation_path name %}`: the way of a suite in one line, above other pages that are steps of it."""

from __future__ import annotations

from typing import Any

from django import template
from django.template import RequestContext

from composer_web.tasks.http.path import steps
from composer_web.tasks.models import Suite

register = template.Library()


@register.inclusion_tag("tasks/_path.html", takes_context=True)
def curation_path(context: RequestContext, name: str) -> dict[str, Any]:
    """Nothing for no suite."""
    suite = Suite.objects.filter(name=name).first() if name else None
    if suite is None:
        return {}
    return {"path": steps(suite, context["request"].user), "compact": True, "suite_name": suite.name}
