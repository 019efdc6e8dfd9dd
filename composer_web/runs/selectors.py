"""Read queries of runs."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Case, IntegerField, Q, QuerySet, When
from django.utils import timezone

from composer_web.core.errors import NotFound
from composer_web.runs.models import RUN_LIVE, Metric, Run, RunEvent


def runs() -> QuerySet[Run]:
    """Runs for lists: with the names of policies and author, without the configuration."""
    named = Run.objects.select_related("policy_in", "policy_out", "created_by")
    return named.defer("config", "policy_in__architecture", "policy_out__architecture")


def whole_runs() -> QuerySet[Run]:
    """Runs for detail pages, with all columns."""
    return Run.objects.select_related("policy_in", "policy_out", "created_by", "parent", "sweep", "start_after")


RECENT = 6
"""Number of runs in the sidebar."""


def recent(*, besides: int | None = None, project: int | None = None, count: int = RECENT) -> list[Run]:
    """Newest runs that are not archived, live ones first, with the columns that a list of names needs."""
    live = Case(When(state__in=RUN_LIVE, then=0), default=1, output_field=IntegerField())
    found = Run.objects.filter(archived_at=None).order_by(live, "-pk")
    if besides is not None:
        found = found.exclude(pk=besides)
    if project is not None:  # pages of the installation are limited to no project
        found = found.filter(project_id=project)
    return list(found.only("pk", "name", "state", "kind", "step", "steps_total")[:count])


def named(text: str, ids: Sequence[int] = (), *, count: int) -> list[Run]:
    """Runs whose name holds the text, or with one of the ids, newest first."""
    found = Run.objects.filter(Q(name__icontains=text) | Q(pk__in=ids)).order_by("-pk")
    return list(found.only("pk", "name", "state", "kind")[:count])


CHOICES = 50
"""Most runs that a select offers."""


def unfinished(*, besides: int | None = None) -> list[Run]:
    """Runs that have yet to finish, newest first, with the columns that a list of names needs: another may start after them."""
    found = Run.objects.filter(state__in=("draft", *RUN_LIVE), archived_at=None).order_by("-pk")
    if besides is not None:
        found = found.exclude(pk=besides)
    return list(found.only("pk", "name", "state")[:CHOICES])


def get_run(pk: int) -> Run:
    """Raises NotFound."""
    found = whole_runs().filter(pk=pk).first()
    if found is None:
        raise NotFound("run", pk)
    return found


def events(run: Run, *, after: int = 0) -> QuerySet[RunEvent]:
    """Events with an id greater than `after`, newest first."""
    return run.events.filter(pk__gt=after).order_by("-pk")


def eta_seconds(run: Run) -> float | None:
    """Seconds until the last step at the mean pace so far. None before the first step or if the run is not running."""
    if run.state not in ("running", "pausing") or run.step == 0 or run.started_at is None:
        return None
    elapsed = (timezone.now() - run.started_at).total_seconds()
    return elapsed / run.step * max(0, run.steps_total - run.step)


def step_seconds(run: Run, last: int = 10) -> float | None:
    """Mean seconds of the last steps, excluding pauses. None before the first step."""
    newest = Metric.objects.filter(run=run, key__name="time/step").order_by("-step").values_list("value", flat=True)
    values = list(newest[:last])
    return sum(values) / len(values) if values else None
