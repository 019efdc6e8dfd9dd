"""The reconciler: finds work that nobody does any more and starts it again, under a cap.

Periodic (`ops.reconcile`), one at a time (advisory lock), and by hand: `manage.py reconcile --dry-run`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import redis
from django.db import connection, transaction
from django.db.models import BigIntegerField, Exists, OuterRef
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils import timezone

from composer_web.core.models import Lease, Outbox
from composer_web.core.queue.outbox import enqueue
from composer_web.core.queue.queues import QUEUES
from composer_web.env import env
from composer_web.evals.models import Evaluation
from composer_web.policies.imports import orders as policy_imports
from composer_web.policies.measurement import measurement_jobs
from composer_web.policies.models import ORDER_OPEN, MeasurementOrder, PolicyImport
from composer_web.repositories import services as repositories
from composer_web.repositories.models import Environment
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.export_models import Export
from composer_web.rollouts.exports import jobs as exports
from composer_web.rollouts.models import GROUP_OPEN, Group
from composer_web.runs.train_queues import pool_queues
from composer_web.runs.training import redispatch

log = logging.getLogger(__name__)

ADVISORY_LOCK = 0x6F63_0001
SILENT = timedelta(seconds=15)
"""A message that was sent this long ago, is not waiting in its queue and was not taken, is lost."""


@dataclass(frozen=True, slots=True)
class Repair:
    """Something that stood still, and what was done about it (or would be, in a dry run)."""

    target: str
    problem: str
    action: str


class Busy(Exception):
    """Another reconciler is at work."""


def reconcile(*, dry_run: bool = False) -> list[Repair]:
    """Look once at everything. Raises Busy."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [ADVISORY_LOCK])
            if not cursor.fetchone()[0]:
                raise Busy("another reconciler runs now; try again in a moment")
        findings = [
            *_groups(dry_run),
            *_evaluations(dry_run),
            *_environments(dry_run),
            *_measurements(dry_run),
            *_imports(dry_run),
            *_exports(dry_run),
            *_runs(dry_run),
        ]
    for finding in findings:
        log.warning("%s: %s: %s", finding.target, finding.problem, finding.action)
    return findings


def _groups(dry_run: bool) -> Iterator[Repair]:
    leases = Lease.objects.filter(expires_at__gte=timezone.now()).exclude(owner="").values_list("resource", flat=True)
    held = set(leases.filter(resource__startswith="group:"))
    for group in Group.objects.filter(state="running"):
        if f"group:{group.pk}" not in held:
            cause = "its worker was lost (lease expired)"
            action = "dispatch again" if dry_run else rollouts.recover(group_id=group.pk, cause=cause)
            if action != "left alone":  # it ended while we looked
                yield Repair(f"group {group.pk}", cause, action)
    depth = queue_depth()
    if depth is None:
        return
    waiting = (
        Outbox.objects.filter(sent_at=None, task="rollouts.run_group")
        .annotate(group=Cast(KeyTextTransform("group_id", "kwargs"), BigIntegerField()))
        .filter(group=OuterRef("pk"))
    )
    silent = Group.objects.filter(state="dispatched", dispatched_at__lt=timezone.now() - SILENT).exclude(
        Exists(waiting)
    )
    for group in silent:
        if depth["rollout" if group.run_id else "eval"] == 0:
            action = "send again" if dry_run else rollouts.recover(group_id=group.pk, cause="its message was lost")
            yield Repair(f"group {group.pk}", "its message was lost (not in the queue, not taken)", action)


def _evaluations(dry_run: bool) -> Iterator[Repair]:
    old = timezone.now() - SILENT
    for evaluation in Evaluation.objects.filter(state="pending", created_at__lt=old):
        yield Repair(f"evaluation {evaluation.pk}", "it was not started", "start")
        if not dry_run:
            enqueue("evals.start", {"evaluation_id": evaluation.pk}, queue="control", key=f"start:{evaluation.pk}")
    open_groups = Group.objects.filter(evaluation=OuterRef("pk"), state__in=GROUP_OPEN)
    for evaluation in Evaluation.objects.filter(state="running", started_at__lt=old).exclude(Exists(open_groups)):
        yield Repair(f"evaluation {evaluation.pk}", "all groups ended and it was not closed", "close")
        if not dry_run:
            enqueue("evals.advance", {"evaluation_id": evaluation.pk}, queue="control", key=f"advance:{evaluation.pk}")


def _environments(dry_run: bool) -> Iterator[Repair]:
    alive = Lease.objects.filter(expires_at__gte=timezone.now()).exclude(owner="").values_list("resource", flat=True)
    held = set(alive.filter(resource__startswith="environment:"))
    for environment in Environment.objects.filter(state="building"):
        if f"environment:{environment.pk}" not in held:
            yield Repair(f"environment {environment.name}", "its builder was lost", "build again")
            if not dry_run:
                repositories.rebuild_lost(environment=environment)


def _measurements(dry_run: bool) -> Iterator[Repair]:
    alive = Lease.objects.filter(expires_at__gte=timezone.now()).exclude(owner="").values_list("resource", flat=True)
    held = set(alive.filter(resource__startswith="measurement:"))
    old = timezone.now() - SILENT
    unsent = set(Outbox.objects.filter(sent_at=None, task="policies.measure").values_list("key", flat=True))
    depth: dict[str, int] | None = None
    for order in MeasurementOrder.objects.filter(state__in=ORDER_OPEN, created_at__lt=old):
        if measurement_jobs.resource(order.pk) in held:
            continue
        problem = "its worker was lost"
        if order.state == "waiting":
            depth = depth or queue_depth()
            if depth is None or depth["io"] or measurement_jobs.resource(order.pk) in unsent:
                continue
            problem = "its message was lost (not in the queue, not taken)"
        yield Repair(f"measurement {order.pk}", problem, "send again")
        if not dry_run:
            measurement_jobs.send_again(order)


def _imports(dry_run: bool) -> Iterator[Repair]:
    alive = Lease.objects.filter(expires_at__gte=timezone.now()).exclude(owner="").values_list("resource", flat=True)
    held = set(alive.filter(resource__startswith="policy-import:"))
    old = timezone.now() - SILENT
    unsent = set(Outbox.objects.filter(sent_at=None, task="policies.import").values_list("key", flat=True))
    depth: dict[str, int] | None = None
    for order in PolicyImport.objects.filter(state__in=ORDER_OPEN, created_at__lt=old):
        if policy_imports.resource(order.pk) in held:
            continue
        problem = "its worker was lost"
        if order.state == "waiting":
            depth = depth or queue_depth()
            if depth is None or depth["io"] or policy_imports.resource(order.pk) in unsent:
                continue
            problem = "its message was lost (not in the queue, not taken)"
        yield Repair(f"import {order.pk}", problem, "send again")
        if not dry_run:
            policy_imports.send_again(order)


def _exports(dry_run: bool) -> Iterator[Repair]:
    old = timezone.now() - SILENT
    waiting = Export.objects.filter(state__in=exports.OPEN, created_at__lt=old).exclude(pk__in=exports.under_way())
    if not waiting.exists():
        return
    depth = queue_depth()
    unsent = Outbox.objects.filter(sent_at=None, task="rollouts.export").exists()
    if depth is None or depth["io"] or unsent:
        return
    busy = Export.objects.filter(pk__in=exports.under_way()).values("owner")
    for export in waiting.exclude(owner__in=busy):
        yield Repair(f"export {export.pk}", "nobody writes it and no message asks for it", "send again")
        if not dry_run:
            exports.send(export)


def _runs(dry_run: bool) -> Iterator[Repair]:
    for run, problem, action in redispatch.lost_messages(dry_run=dry_run):
        yield Repair(f"run {run.pk}", problem, action)


def queue_depth() -> dict[str, int] | None:
    """Messages waiting in each queue, those of pools of train workers included; None when the broker does not answer."""
    try:
        client = redis.Redis.from_url(env().redis_url, socket_timeout=2.0, socket_connect_timeout=2.0)
        with client:
            pools = pool_queues(key.decode() for key in client.scan_iter(match="train.*", _type="list"))
            return {name: int(client.llen(name)) for name in (*QUEUES, *pools)}
    except redis.RedisError as error:
        log.warning("the broker does not answer: %s", error)
        return None
