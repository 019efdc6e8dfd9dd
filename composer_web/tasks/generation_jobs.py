"""Status of requested suites: requested, in progress, created, empty, or failed.

An order is a row of the audit log, and so is its end: who asked for what and what came of it is history anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.db import transaction
from django.utils import timezone

from composer_web.accounts.models import AuditEntry, User
from composer_web.accounts.scoping import project_now, within
from composer_web.accounts.services import audit
from composer_web.core import leases
from composer_web.live.hints import hint

ASKED, DONE, FAILED = "suite.generate", "suite.generated", "suite.generate-failed"
RECENT = timedelta(days=14)
MOST = 20
MOST_ENTRIES = 200

State = Literal["under way", "made", "no task", "failed"]


@dataclass(frozen=True)
class Order:
    """One order and its end. `why` says what kept it from giving tasks."""

    name: str
    generators: tuple[str, ...]
    by: str
    at: datetime
    state: State
    tasks: int = 0
    why: str = ""

    @property
    def tone(self) -> str:
        """The state whose colour it has."""
        return {"under way": "running", "made": "finished", "failed": "failed", "no task": "warning"}[self.state]


def asked(*, name: str, generators: Sequence[str], actor: User | None) -> int:
    """A new order; returns its id."""
    row = audit(actor=actor, action=ASKED, target=_target(name), generators=list(generators), project=project_now())
    hint("suites")
    return row.pk


@transaction.atomic
def ended(*, name: str, tasks: int, why: str = "", order: int = 0) -> None:
    """An order that was carried out, perhaps without a task that could be kept. Raises LeaseLost."""
    leases.fence()
    audit(actor=None, action=DONE, target=_target(name), tasks=tasks, why=why, project=project_now(), order=order)
    hint("suites")


@transaction.atomic
def failed(*, name: str, why: str, order: int = 0) -> None:
    """Raises LeaseLost."""
    leases.fence()
    audit(actor=None, action=FAILED, target=_target(name), why=why[:2000], project=project_now(), order=order)
    hint("suites")


def has_ended(order: int) -> bool:
    """Whether the order was carried out, or failed."""
    return bool(order) and AuditEntry.objects.filter(action__in=(DONE, FAILED), detail__order=order).exists()


def recent() -> list[Order]:
    """Orders of the last days in the project of the request, newest first. One query."""
    entries = AuditEntry.objects.filter(at__gte=timezone.now() - RECENT, action__in=(ASKED, DONE, FAILED))
    rows = within(entries, path="detail__project").order_by("-id")
    found: list[Order] = []
    ends: dict[str | int, AuditEntry] = {}
    for row in rows[:MOST_ENTRIES]:
        if row.action != ASKED:
            ends[row.detail.get("order") or row.target] = row
            continue
        found.append(_order(row, ends.pop(row.pk, None) or ends.pop(row.target, None)))
    return found[:MOST]


def _target(name: str) -> str:
    return f"suite:{name}"


def _order(row: AuditEntry, end: AuditEntry | None) -> Order:
    state: State = "under way"
    tasks, why = 0, ""
    if end is not None:
        tasks, why = int(end.detail.get("tasks", 0)), str(end.detail.get("why", ""))
        state = "failed" if end.action == FAILED else "made" if tasks else "no task"
    return Order(
        name=row.target.partition(":")[2],
        generators=tuple(row.detail.get("generators", ())),
        by=row.actor_name,
        at=row.at,
        state=state,
        tasks=tasks,
        why=why,
    )
