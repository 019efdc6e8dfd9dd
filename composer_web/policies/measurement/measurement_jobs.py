"""Measurements that people ask for: asked on a page, by API or command line, carried out by a worker, stopped by hand or deadline."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from composer_web.accounts.models import DEFAULT_PROJECT, User
from composer_web.accounts.scoping import project_now
from composer_web.accounts.services import audit
from composer_web.live.hints import hint
from composer_web.core.queue import leases
from composer_web.core.errors import Conflict, NotFound, UserError
from composer_web.core.queue.outbox import enqueue
from composer_web.datasets import codebases
from composer_web.policies.measurement import measuring
from composer_web.policies.models import ORDER_OPEN, MeasurementOrder, Policy
from composer_web.policies.measurement.measurement_schemas import Wanted
from composer_web.policies.selectors import resolve
from trainer.model_selection.codebase import Recent
from trainer.model_selection.scores import Selection

MAX_OPEN = 8
"""Limit for one project: each open order occupies a worker for minutes."""
MAX_ATTEMPTS = 3
SHOWN = timedelta(days=2)
"""How long a policy's page shows an order without a result."""


def resource(order_id: int) -> str:
    """Resource name of the worker's lease."""
    return f"measurement:{order_id}"


def orders() -> QuerySet[MeasurementOrder]:
    return MeasurementOrder.objects.select_related("policy", "created_by")


def get_order(pk: int) -> MeasurementOrder:
    """Raises NotFound."""
    found = orders().filter(pk=pk).first()
    if found is None:
        raise NotFound("measurement", pk)
    return found


def of_page(policy: Policy) -> list[MeasurementOrder]:
    """Those that are open, and what lately gave nothing."""
    since = timezone.now() - SHOWN
    recent = [row for row in orders().filter(policy=policy)[:20] if row.open or _failed_since(row, since)]
    return recent[:MAX_OPEN]


def _failed_since(row: MeasurementOrder, since: datetime) -> bool:
    return row.state == "failed" and row.finished_at is not None and row.finished_at > since


def ask(*, policy: Policy, version: int | None = None, wanted: Wanted, actor: User | None = None) -> MeasurementOrder:
    """A worker will measure it; the same asked twice at a time is one. Raises UserError, Conflict."""
    weights = resolve(policy.name if version is None else policy.at(version))
    checked = _checked(wanted)
    key = hashlib.sha256(checked.model_dump_json().encode()).hexdigest()
    project = project_now()
    mine = MeasurementOrder.objects.filter(project=project, state__in=ORDER_OPEN)
    if same := mine.filter(policy=policy, version=weights.version, key=key).first():
        return same
    if mine.count() >= MAX_OPEN:
        raise Conflict(f"{MAX_OPEN} measurements of this project wait or run; wait until one has ended, or stop one")
    try:
        with transaction.atomic():
            made = MeasurementOrder.objects.create(
                project_id=project, policy=policy, version=weights.version, wanted=checked.model_dump(mode="json"),
                key=key, created_by=actor,
            )  # fmt: skip
            words = {"policy": policy.at(weights.version), "codebase": checked.codebase}
            audit(actor=actor, action="measurement.ask", target=f"policy:{policy.pk}", **words)
            _send(made)
    except IntegrityError:  # somebody was faster
        return mine.get(policy=policy, version=weights.version, key=key)
    return made


def _checked(wanted: Wanted) -> Wanted:
    """Raises UserError that names the field."""
    place = codebases.find(wanted.codebase)
    if wanted.since:
        try:
            Recent(since=wanted.since)
        except ValueError:
            raise UserError("since", f"since is {wanted.since!r}; write a date like 2026-01-31") from None
        if wanted.commits:
            raise UserError("since", "recent lines are those of the last commits, or those since a date: choose one")
    if not place.history and (wanted.commits or wanted.since):
        raise UserError(
            "commits",
            f"{wanted.codebase} has no history, so none of it is recent; leave commits and since empty, or measure a repository",
        )
    return wanted if place.history else wanted.model_copy(update={"commits": 0})


def _send(order: MeasurementOrder) -> None:
    enqueue("policies.measure", {"order_id": order.pk}, queue="io", key=resource(order.pk))
    hint("policies")


def stop(*, order: MeasurementOrder, actor: User | None) -> MeasurementOrder:
    """Its worker ends it at its next look. Raises Conflict when it has ended."""
    why = f"{actor or 'an operator of the machine'} stopped it"
    with transaction.atomic():
        if not _end(order.pk, state="stopped", cause=why):
            raise Conflict(f"measurement {order.pk} has ended already")
        audit(actor=actor, action="measurement.stop", target=f"policy:{order.policy_id}", order=order.pk)
    return get_order(order.pk)


def _end(pk: int, *, state: str, cause: str = "", **values: object) -> bool:
    """False when it had ended before."""
    rows = MeasurementOrder.objects.filter(pk=pk, state__in=ORDER_OPEN)
    ended = rows.update(state=state, cause=cause[:2000], doing="", finished_at=timezone.now(), **values)
    hint("policies")
    return bool(ended)


def claim(order_id: int, held: leases.Held) -> MeasurementOrder | None:
    """The worker that holds the lease begins; None where nothing is to be done any more."""
    with transaction.atomic():
        leases.require(held)
        order = orders().filter(pk=order_id, state__in=ORDER_OPEN).select_for_update(of=("self",)).first()
        if order is None:
            return None
        if order.attempts >= MAX_ATTEMPTS:
            _end(
                order_id,
                state="failed",
                cause=f"{MAX_ATTEMPTS} workers were lost while they measured it, as a rule for lack of memory; measure with a "
                "smaller window, or on a worker with more memory",
            )
            return None
        order.attempts += 1
        order.state = "running"
        order.started_at = timezone.now()
        order.save(update_fields=["attempts", "state", "started_at"])
    hint("policies")
    return order


def say(order: MeasurementOrder, *, doing: str, share: float) -> bool:
    """How far it is; False when it is to end: somebody stopped it."""
    now = (doing[:80], min(max(share, 0.0), 1.0))
    rows = MeasurementOrder.objects.filter(pk=order.pk, state="running")
    if now == (order.doing, order.share):  # pages are told of what is new, not of each look
        return rows.exists()
    order.doing, order.share = now
    told = rows.update(doing=order.doing, share=order.share)
    hint("policies")
    return bool(told)


def finish(order: MeasurementOrder, held: leases.Held, found: Selection) -> None:
    """Raises LeaseLost."""
    with transaction.atomic():
        leases.require(held)
        row = measuring.keep(order.policy, order.version, found, project=order.project_id or DEFAULT_PROJECT)
        _end(order.pk, state="done", share=1.0, measurement=row)


def fail(order: MeasurementOrder, held: leases.Held, cause: str) -> None:
    """Raises LeaseLost."""
    with transaction.atomic():
        leases.require(held)
        _end(order.pk, state="failed", cause=cause or "it ended without a word; the worker's log has what there is")


def send_again(order: MeasurementOrder) -> None:
    """Its worker or its message was lost."""
    with transaction.atomic():
        MeasurementOrder.objects.filter(pk=order.pk, state="running").update(state="waiting", doing="", share=0.0)
        _send(order)
