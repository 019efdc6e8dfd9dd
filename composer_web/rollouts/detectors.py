"""Detectors over rollouts: infrastructure errors and open findings, each by run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Count, Q
from django.urls import reverse
from django.utils import timezone

from composer_web.core.detectors import Detector, Insight, register
from composer_web.rollouts.models import Finding, Rollout
from composer_web.runs.models import RUN_LIVE, Run

WITHIN = timedelta(minutes=30)
MIN_ROLLOUTS = 10
"""A share of fewer says nothing."""
LOST_SHARE = 0.05
MAX_RUNS = 10


def infra_errors(run: Run | None = None) -> Iterator[Insight]:
    """Many attempts of a live run ended with infra errors within half an hour. They are run again, which costs time."""
    if run is not None and run.state not in RUN_LIVE:
        return
    recent = Rollout.objects.filter(finished_at__gte=timezone.now() - WITHIN, group__run__state__in=RUN_LIVE)
    if run is not None:
        recent = recent.filter(group__run=run)
    # First those with any loss, by an index of their own: half an hour may hold tens of thousands of rollouts.
    lost_by_run = dict(
        recent.filter(verdict="infra_error").values_list("group__run").annotate(n=Count("pk")).order_by("-n")[:MAX_RUNS]
    )
    if not lost_by_run:
        return
    rows = (
        recent.filter(group__run__in=lost_by_run)
        .exclude(verdict="")
        .values_list("group__run", "group__run__name")
        .annotate(ended=Count("pk"))
    )
    for found, name, ended in sorted(rows, key=lambda row: -lost_by_run[row[0]]):
        lost = lost_by_run[found]
        if ended >= MIN_ROLLOUTS and lost / ended >= LOST_SHARE:
            yield Insight(
                f"run:{found}",
                "Infra errors",
                f"{lost} of {ended} rollouts of the last {WITHIN.seconds // 60} min are infra errors",
                "Read the causes of the lost rollouts; check the sandbox backend, the engine and the disk.",
                f"{reverse('rollouts:of-run', args=[found])}?verdict=infra_error",
                name,
            )


def open_findings(run: Run | None = None) -> Iterator[Insight]:
    """The auditor marked rollouts of a run as likely reward hacks, and nobody has triaged them."""
    only = Q() if run is None else Q(run=run)
    rows = (
        Finding.objects.filter(only, severity="high", state="open", run__isnull=False, run__archived_at=None)
        .values_list("run", "run__name")
        .annotate(count=Count("pk"))
        .order_by("-count")
    )
    for found, name, count in rows[:MAX_RUNS]:
        yield Insight(
            f"run:{found}",
            "Untriaged findings",
            f"{count} high-severity finding{'' if count == 1 else 's'} without a decision",
            "Triage each finding: confirm it, or dismiss it with a reason.",
            f"{reverse('rollouts:findings')}?run={found}&severity=high&state=open",
            name,
        )


def install() -> None:
    """Register both. Called once, by `AppConfig.ready()`."""
    for name, title, severity, look in (
        ("infra-errors", "Infra errors", "high", infra_errors),
        ("open-findings", "Untriaged findings", "medium", open_findings),
    ):
        register(Detector(name, title, " ".join((look.__doc__ or "").split()), severity, look, look))  # type: ignore[arg-type]
