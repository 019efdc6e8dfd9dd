"""Read queries of environments."""

from __future__ import annotations

import statistics
from datetime import datetime

from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from composer_web.core.artifacts import artifacts
from composer_web.core.errors import NotFound
from composer_web.repositories.models import Environment, EnvironmentTransition, Repository
from composer_web.tasks.models import TaskVersion


def environments() -> QuerySet[Environment]:
    """For lists: the number of task versions comes along."""
    theirs = TaskVersion.objects.filter(environment=OuterRef("pk")).order_by().values("environment")
    counted = Coalesce(Subquery(theirs.annotate(n=Count("pk")).values("n")), 0)
    return Environment.objects.select_related("created_by", "repository").annotate(task_count=counted)


def repositories() -> QuerySet[Repository]:
    """For lists: their environments come along."""
    return Repository.objects.select_related("environment")


def get_environment(key: int | str) -> Environment:
    """By id or name. Raises NotFound."""
    query = environments()
    found = query.filter(pk=key).first() if isinstance(key, int) else query.filter(name=key).first()
    if found is None:
        raise NotFound("environment", key)
    return found


def build_seconds(limit: int = 50) -> float | None:
    """Median seconds that finished builds took here; None before the first."""
    begun: dict[int, datetime] = {}
    took: list[float] = []
    for step in EnvironmentTransition.objects.filter(to_state__in=["building", "ready"]).order_by("-id")[: 4 * limit][
        ::-1
    ]:
        if step.to_state == "building":
            begun[step.environment_id] = step.at
        elif start := begun.pop(step.environment_id, None):
            took.append((step.at - start).total_seconds())
    return statistics.median(took) if took else None


def build_log(environment: Environment) -> str:
    """Text of the running build so far, else of the last one; empty when there is none. Raises ArtifactError."""
    if environment.state == "building":
        return "".join(environment.lines.values_list("text", flat=True))
    return artifacts().get(environment.log_key).decode(errors="replace") if environment.log_key else ""
