"""`/metrics` for Prometheus: the state of the installation, read at each scrape, and response times of this process.

It requires a token of the scope `metrics`, which grants nothing else. Access by address would be unsafe: behind a proxy
on the same machine, every client would appear to come from the loopback.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from composer_web.accounts import access
from composer_web.accounts.services import SCOPES, authenticate_token
from composer_web.core import inference
from composer_web.core.models import Lease, Outbox, WorkerHeartbeat
from composer_web.core.network.latency import registry
from composer_web.core.queue.heartbeats import SILENT_SECONDS
from composer_web.env import env
from composer_web.system.reconcile import queue_depth
from trainer.inference.contract import InferenceError

SCOPE = "metrics"
RUN_VALUES = {"reward/mean": "reward_mean", "staleness/max": "staleness_max", "staleness/mean": "staleness_mean"}
"""Latest values of a run with a time series of their own. The others are on its page and in mirrors."""

TOTALS_SECONDS = 60.0
"""Cache time of counts over whole tables. They scan an index, which is expensive with a million rows."""

Rows = dict[tuple[str, ...], float]


def _gauge(name: str, text: str, rows: Rows, *labels: str) -> Metric:
    family = GaugeMetricFamily(f"opencomposer_{name}", text, labels=labels)
    for values, number in rows.items():
        family.add_metric(values, number)
    return family


class Totals:
    """Groups by state and rollouts by verdict, from index-only reads at most once per TOTALS_SECONDS."""

    def __init__(self) -> None:
        self._kept: dict[int | None, tuple[float, Rows, Rows]] = {}
        """Cache by the project whose rows the request sees; None sees all."""

    def read(self) -> tuple[Rows, Rows]:
        """(groups by (state,), rollouts by (verdict,)). Rollouts without a verdict are not counted."""
        from composer_web.rollouts.models import Group, Rollout

        now = access.current()
        scope = None if now is None else now.scope
        read_at, groups, rollouts = self._kept.get(scope, (-TOTALS_SECONDS, {}, {}))
        if time.monotonic() - read_at >= TOTALS_SECONDS:
            by_state = Group.objects.values_list("state").annotate(n=Count("*")).order_by()
            by_verdict = Rollout.objects.exclude(verdict="").values_list("verdict").annotate(n=Count("*")).order_by()
            groups, rollouts = {(state,): n for state, n in by_state}, {(verdict,): n for verdict, n in by_verdict}
            self._kept[scope] = (time.monotonic(), groups, rollouts)
        return groups, rollouts

    def forget(self) -> None:
        self._kept.clear()


totals = Totals()


class Installation(Collector):
    """Reads from the database at each scrape, so that a restarted web process loses nothing."""

    def collect(self) -> Iterator[Metric]:
        from composer_web.runs.models import RUN_LIVE, Run

        now = timezone.now()
        depth = queue_depth()
        yield _gauge("broker_up", "Whether the broker answers", {(): float(depth is not None)})
        yield _gauge("queue_messages", "Messages that wait", {(k,): v for k, v in (depth or {}).items()}, "queue")
        waiting = Outbox.objects.filter(sent_at=None, due_at__lte=now).count()
        yield _gauge("outbox_waiting", "Messages that are due and not sent", {(): waiting})
        held = Lease.objects.exclude(owner="").values_list("resource", "expires_at")
        leases: Rows = {}
        for resource, expires in held:
            key = (resource.partition(":")[0], "expired" if expires < now else "held")
            leases[key] = leases.get(key, 0) + 1
        yield _gauge("leases", "Leases that somebody holds or let expire", leases, "kind", "state")
        workers: Rows = {}
        for kind, beat in WorkerHeartbeat.objects.values_list("kind", "beat_at"):
            key = (kind, "alive" if (now - beat).total_seconds() < SILENT_SECONDS else "silent")
            workers[key] = workers.get(key, 0) + 1
        yield _gauge("workers", "Processes that said they live", workers, "kind", "state")
        yield _gauge("train_workers", "Living train workers by pool", _train_workers(now), "pool", "state")
        groups, rollouts = totals.read()
        yield _gauge("groups", "Groups of rollouts by state", groups, "state")
        yield _gauge("rollouts", "Rollouts by verdict", rollouts, "verdict")
        states = Run.objects.values("state").annotate(n=Count("pk")).order_by()
        yield _gauge("runs", "Runs by state", {(r["state"],): r["n"] for r in states}, "state")
        live = list(Run.objects.filter(state__in=RUN_LIVE).only("pk", "step", "latest"))
        yield _gauge("run_step", "Optimiser steps of a live run", {(str(r.pk),): r.step for r in live}, "run")
        for metric, name in RUN_VALUES.items():
            values: Rows = {(str(r.pk),): r.latest[metric] for r in live if r.latest.get(metric) is not None}
            yield _gauge(f"run_{name}", f"Latest {metric} of a live run", values, "run")
        yield from _engine()
        usage = shutil.disk_usage(env().data)
        yield _gauge("disk_free_bytes", "Free where the data lie", {(): usage.free})
        yield _gauge("disk_total_bytes", "Size of the disk where the data lie", {(): usage.total})


def _engine() -> Iterator[Metric]:
    try:
        health = inference.health()
    except InferenceError:
        yield _gauge("engine_up", "Whether the inference server answers", {(): 0})
        return
    yield _gauge("engine_up", "Whether the inference server answers", {(): float(health.ok)})
    yield _gauge("engine_tokens_per_second", "Tokens sampled a second", {(): health.tokens_per_second})
    filled: Rows = {(one.name,): one.cache_share for one in health.deployments if one.cache_share is not None}
    about = "Largest share of the room for keys and values that running requests filled in the last 10 s"
    yield _gauge("engine_cache_share", about, filled, "deployment")


def _train_workers(now: datetime) -> Rows:
    rows: Rows = {}
    alive = now - timedelta(seconds=SILENT_SECONDS)
    for detail in WorkerHeartbeat.objects.filter(kind="train", beat_at__gte=alive).values_list("detail", flat=True):
        for pool in detail.get("pools", []):
            key = (pool, "busy" if detail.get("run") else "free")
            rows[key] = rows.get(key, 0) + 1
    return rows


registry.register(Installation())


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """All metrics as text. 401 and 403 name the missing token."""
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    token = authenticate_token(secret.strip()) if scheme.lower() == "bearer" and secret else None
    if token is None:
        refusal = HttpResponse("send `Authorization: Bearer <token>` with the scope metrics\n", "text/plain", 401)
        refusal["WWW-Authenticate"] = "Bearer"
        return refusal
    if SCOPE not in token.scopes or not token.user.may(SCOPES[SCOPE]):
        return HttpResponse(f"this needs a token with the scope {SCOPE} itself\n", "text/plain", 403)
    if token.project_id is not None:
        return HttpResponse(
            "these numbers are of the whole installation; the token is of one project only\n", "text/plain", 403
        )
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
