"""Evaluates all rules every few seconds, each with a bounded number of rows."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from datetime import timedelta

from django.db import DatabaseError, connection, transaction
from django.db.models import Count, Q
from django.utils import timezone

from composer_web.alerts.models import Alert, Comparison, Delivery, Kind, Rule, Severity
from composer_web.alerts.rules import services
from composer_web.alerts.sending import send_later
from composer_web.core import detectors, inference
from composer_web.core.queue import overview
from composer_web.policies.models import Promotion
from composer_web.rollouts.models import Finding, Rollout
from composer_web.runs.engine_lag import allowed_lag, lagging
from composer_web.runs.models import Metric, MetricKey, Run
from composer_web.runs.paths import deployment_name
from trainer.inference.contract import InferenceError

log = logging.getLogger(__name__)

ADVISORY_LOCK = 0x6F63_0002
MAX = 200
"""Rows of one kind that a rule looks at."""
MIN_ROLLOUTS = 10
"""A share of fewer says nothing."""
RECENT = timedelta(hours=1)
"""Runs that ended within this are still looked at: a short run may end between two looks."""
STUCK = timedelta(seconds=60)
ENGINE_SECONDS = 2.0
"""Timeout of the inference server."""

Seen = Iterator[tuple[str, str]]
"""What it is about → the message."""


def look() -> int:
    """All rules once; returns how many conditions hold. Another process that looks now makes this one return 0."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [ADVISORY_LOCK])
            if not cursor.fetchone()[0]:
                return 0
        _engine_lag_is_watched()
        with detectors.sharing():
            found = sum(_apart(rule) for rule in Rule.objects.filter(active=True).select_related("webhook"))
        _send_what_is_stuck()
    return found


def _apart(rule: Rule) -> int:
    """A rule that the database refuses must not silence the others."""
    try:
        with transaction.atomic():
            return _one(rule)
    except DatabaseError:
        log.exception("rule %s (%s) could not be looked at", rule.pk, rule.name)
        return 0


def _one(rule: Rule) -> int:
    held = dict(WATCHERS[Kind(rule.kind)](rule))
    for about, message in held.items():
        services.saw(rule=rule, about=about, message=message)
    if len(held) < MAX:  # beyond, what was not looked at is not over
        for alert in Alert.objects.filter(rule=rule, resolved_at=None).exclude(about__in=held):
            services.over(alert=alert)
    return len(held)


def _runs(rule: Rule) -> list[Run]:
    alive = Q(state__in=("running", "pausing", "paused")) | Q(finished_at__gte=timezone.now() - RECENT)
    query = Run.objects.filter(alive)
    if rule.run_name:
        query = query.filter(name__icontains=rule.run_name)
    return list(query.only("pk", "name").order_by("-pk")[:MAX])


def _metric(rule: Rule) -> Seen:
    key = MetricKey.objects.filter(name=rule.metric).first()
    if key is None:
        return
    for run in _runs(rule):
        points = list(
            Metric.objects.filter(run=run, key=key).order_by("-step").values_list("value", flat=True)[: rule.window]
        )
        if len(points) < rule.window:
            continue
        mean = math.fsum(points) / len(points)
        if (mean > rule.threshold) if rule.comparison == Comparison.ABOVE else (mean < rule.threshold):
            of = f", mean of the last {rule.window} points" if rule.window > 1 else ""
            yield (
                f"run:{run.pk}",
                f"{rule.metric} of run {run.pk} ({run.name}) is {mean:.4g}, {rule.comparison} {rule.threshold:g}{of}",
            )


def _finding(rule: Rule) -> Seen:
    wanted = list(Severity.values)[list(Severity.values).index(rule.severity) :]
    query = Finding.objects.filter(severity__in=wanted, state="open", created_at__gte=rule.created_at)
    if rule.run_name:
        query = query.filter(run__name__icontains=rule.run_name)
    for finding in query.order_by("-pk")[:MAX]:
        yield f"finding:{finding.pk}", f"{finding.severity} finding {finding.rule}: {finding.summary}"


def _run_failed(rule: Rule) -> Seen:
    query = Run.objects.filter(state="failed", finished_at__gte=rule.created_at)
    if rule.run_name:
        query = query.filter(name__icontains=rule.run_name)
    for run in query.order_by("-pk")[:MAX]:
        yield f"run:{run.pk}", f"run {run.pk} ({run.name}) failed: {run.failure[:500]}"


def _infra_share(rule: Rule) -> Seen:
    since = timezone.now() - timedelta(minutes=rule.window)
    runs = {run.pk: run.name for run in _runs(rule)}
    counts = (
        Rollout.objects.filter(finished_at__gte=since, group__run__in=runs)
        .exclude(verdict="")
        .values_list("group__run")
        .annotate(all=Count("pk"), lost=Count("pk", filter=Q(verdict="infra_error")))
        .order_by("group__run")
    )
    for run, total, lost in counts:
        if total >= MIN_ROLLOUTS and lost / total > rule.threshold:
            yield (
                f"run:{run}",
                f"{lost} of {total} rollouts of run {run} ({runs[run]}) were infra errors within "
                f"{rule.window} min, more than {100 * rule.threshold:.0f} %",
            )


def _worker_gone(rule: Rule) -> Seen:
    for worker in overview.offline()[:MAX]:
        yield (
            f"worker:{worker.name}"[:120],
            f"the {worker.kind} process {worker.name} has not reported since {worker.beat_at:%H:%M:%S}",
        )


def _guard(rule: Rule) -> Seen:
    """Until the channel changes again: then somebody has seen to it."""
    newest = Promotion.objects.order_by("channel", "-pk").distinct("channel").values("pk")
    for row in Promotion.objects.filter(pk__in=newest, guard=True, created_at__gte=rule.created_at)[:MAX]:
        yield f"channel:{row.channel}", f"the canary of {row.channel} was {row.note[:500]}"


def _lagging() -> dict[Run, str]:
    """Live runs with engines that serve older weights than they may, in words. Empty while the server does not answer."""
    runs = {deployment_name(run): run for run in Run.objects.filter(kind="rl", state="running").order_by("-pk")[:MAX]}
    if not runs:
        return {}
    try:
        served = inference.health(timeout=ENGINE_SECONDS).deployments
    except InferenceError as error:
        log.info("nothing is known about lagging engines: %s", error)
        return {}
    found = {}
    for status in served:
        if (run := runs.get(status.name)) is not None:
            late = lagging(status, newest=run.policy_version, max_lag=allowed_lag(run))
            words = ", ".join(f"{engine.url or 'the engine'} serves version {engine.version}" for engine in late)
            if late:
                found[run] = (
                    f"{words}; {run.policy_version} is published. Look at its log and at its way to the weight store"
                )
    return found


def _engine_lag_is_watched() -> None:
    """The first engine that lags makes the rule that tells of it; who wants to hear nothing switches the rule off."""
    if not Rule.objects.filter(kind=Kind.ENGINE_LAG).exists() and _lagging():
        services.make_rule(actor=None, name=Kind.ENGINE_LAG.label, kind=Kind.ENGINE_LAG.value)


def _engine_lag(rule: Rule) -> Seen:
    for run, words in _lagging().items():
        if rule.run_name.lower() in run.name.lower():
            yield f"run:{run.pk}", f"run {run.pk} ({run.name}): {words}"


def _detector(rule: Rule) -> Seen:
    detector = detectors.detector(rule.detector)
    if detector is None:  # of an app that this installation no longer has
        return
    for insight in detector.look():
        if rule.run_name.lower() in insight.run.lower():
            of = f" of {insight.about.replace(':', ' ')} ({insight.run})" if insight.run else ""
            yield insight.about, f"{insight.title}{of}: {insight.message}. {insight.remedy}"


WATCHERS: dict[Kind, Callable[[Rule], Seen]] = {
    Kind.METRIC: _metric,
    Kind.FINDING: _finding,
    Kind.RUN_FAILED: _run_failed,
    Kind.INFRA_SHARE: _infra_share,
    Kind.WORKER_GONE: _worker_gone,
    Kind.GUARD: _guard,
    Kind.ENGINE_LAG: _engine_lag,
    Kind.DETECTOR: _detector,
}


def _send_what_is_stuck() -> None:
    """Deliveries whose message was lost: due for a while, still waiting."""
    for row in Delivery.objects.filter(state="waiting", due_at__lt=timezone.now() - STUCK).order_by("due_at")[:MAX]:
        send_later(row)
