"""Reads of runs."""

from __future__ import annotations

import time
from collections.abc import Callable

from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from composer_web.ops.errors import NotFound
from composer_web.runs.models import RUN_FINAL, Metric, Run, RunEvent


class WaitTimeout(Exception):
    """A wait ended at its deadline. The message names what was waited for and the last state seen."""


def runs() -> QuerySet[Run]:
    """For lists: the names of policies and author come along, what was configured does not."""
    named = Run.objects.select_related("policy_in", "policy_out", "created_by")
    return named.defer("config", "policy_in__architecture", "policy_out__architecture")


def whole_runs() -> QuerySet[Run]:
    """For pages that show everything of a run."""
    return Run.objects.select_related("policy_in", "policy_out", "created_by", "parent", "sweep")


def get_run(pk: int) -> Run:
    """Raises NotFound."""
    found = whole_runs().filter(pk=pk).first()
    if found is None:
        raise NotFound("run", pk)
    return found


def events(run: Run, *, after: int = 0) -> QuerySet[RunEvent]:
    """Newest first; only those with an id beyond `after`."""
    return run.events.filter(pk__gt=after).order_by("-pk")


def event_counts(run: Run) -> dict[str, int]:
    return run.events.aggregate(
        warnings=Count("pk", filter=Q(level="warning")), errors=Count("pk", filter=Q(level="error"))
    )


def eta_seconds(run: Run) -> float | None:
    """Seconds until the last step at the mean pace so far; None before the first step or when it does not run."""
    if run.state not in ("running", "pausing") or run.step == 0 or run.started_at is None:
        return None
    elapsed = (timezone.now() - run.started_at).total_seconds()
    return elapsed / run.step * max(0, run.steps_total - run.step)


def step_seconds(run: Run, last: int = 10) -> float | None:
    """Mean seconds of the last steps, without the time in which the run was paused; None before the first."""
    newest = Metric.objects.filter(run=run, key__name="time/step").order_by("-step").values_list("value", flat=True)
    values = list(newest[:last])
    return sum(values) / len(values) if values else None


def wait_for(run: Run, condition: Callable[[Run], bool], *, what: str, timeout: float, poll: float = 0.5) -> Run:
    """The run once `condition` holds. Raises WaitTimeout after `timeout` seconds."""
    end = time.monotonic() + timeout
    while True:
        run.refresh_from_db()
        if condition(run):
            return run
        if time.monotonic() > end:
            raise WaitTimeout(
                f"run {run.pk} is {run.state} at step {run.step} of {run.steps_total}, not {what}, after {timeout:.0f} s"
            )
        time.sleep(poll)


def wait_until_final(run: Run, *, timeout: float, poll: float = 0.5) -> Run:
    return wait_for(run, lambda r: r.state in RUN_FINAL, what="at its end", timeout=timeout, poll=poll)
