"""Reads of environments."""

from __future__ import annotations

from django.db.models import Count, QuerySet

from composer_web.ops.artifacts import artifacts
from composer_web.ops.errors import NotFound
from composer_web.repositories.models import Environment


def environments() -> QuerySet[Environment]:
    """For lists: the number of task versions comes along."""
    return Environment.objects.select_related("created_by").annotate(task_count=Count("task_versions"))


def get_environment(key: int | str) -> Environment:
    """By id or name. Raises NotFound."""
    query = environments()
    found = query.filter(pk=key).first() if isinstance(key, int) else query.filter(name=key).first()
    if found is None:
        raise NotFound("environment", key)
    return found


def build_log(environment: Environment) -> str:
    """Text of the last build; empty when there is none. Raises ArtifactError."""
    return artifacts().get(environment.log_key).decode(errors="replace") if environment.log_key else ""
