"""Generation jobs: who requested which suite, how far it is, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.scoping import project_now
from composer_web.accounts.services import audit
from composer_web.core.errors import Conflict, NotFound
from composer_web.core.queue import leases
from composer_web.live.hints import hint
from composer_web.tasks.models import GenerationJob, GenerationState

RECENT = timedelta(days=14)
MAX_LISTED = 20


@transaction.atomic
def create(
    *, name: str, generators: Sequence[str], packages: Sequence[str], requested: int, actor: User | None
) -> GenerationJob:
    job = GenerationJob.objects.create(
        name=name, generators=list(generators), packages=list(packages), requested=requested, requested_by=actor
    )
    _audit(actor, "suite.generate", job, generators=list(generators))
    hint("suites")
    return job


def get(pk: int) -> GenerationJob:
    """Raises NotFound."""
    job = GenerationJob.objects.filter(pk=pk).first()
    if job is None:
        raise NotFound("generation job", pk)
    return job


def start(pk: int) -> bool:
    """Mark it as running. False when it has ended, or was stopped before."""
    left = GenerationJob.objects.filter(pk=pk, ended_at=None)
    if left.filter(started_at=None).update(started_at=timezone.now(), state=GenerationState.RUNNING):
        hint("suites")
    return left.exists()


def progress(pk: int, *, kept: int, tried: int, current: str) -> bool:
    """Record how far it is. False when somebody has stopped it."""
    same = GenerationJob.objects.filter(pk=pk, ended_at=None)
    if same.exclude(kept=kept, tried=tried, current=current).update(kept=kept, tried=tried, current=current):
        hint("suites")
    return same.exists()


@transaction.atomic
def finish(pk: int, *, tasks: int, why: str = "") -> None:
    """It was carried out, perhaps without a task that could be kept. Raises LeaseLost."""
    _end(pk, GenerationState.FINISHED if tasks else GenerationState.EMPTY, kept=tasks, why=why)


@transaction.atomic
def fail(pk: int, *, why: str) -> None:
    """Raises LeaseLost."""
    _end(pk, GenerationState.FAILED, why=why)


def _end(pk: int, state: GenerationState, *, why: str, **fields: int) -> None:
    leases.fence()
    ended = GenerationJob.objects.filter(pk=pk, ended_at=None)
    if ended.update(state=state, why=why[:2000], current="", ended_at=timezone.now(), **fields):
        job = GenerationJob.objects.get(pk=pk)
        _audit(None, f"suite.generate-{state}", job, tasks=job.kept, why=job.why)
        hint("suites")


@transaction.atomic
def stop(pk: int, *, actor: User | None) -> GenerationJob:
    """End a job; its worker notices within seconds. No suite is made. Raises NotFound, Conflict."""
    get(pk)
    changed = GenerationJob.objects.filter(pk=pk, ended_at=None).update(
        state=GenerationState.STOPPED, current="", ended_at=timezone.now(), kept=0
    )
    job = get(pk)
    if not changed:
        raise Conflict(f"generation job {pk} has ended ({job.state})", "state")
    _audit(actor, "suite.generate-stop", job)
    hint("suites")
    return job


def _audit(actor: User | None, action: str, job: GenerationJob, **detail: Any) -> None:
    audit(actor=actor, action=action, target=f"suite:{job.name}", job=job.pk, project=project_now(), **detail)


def recent() -> list[GenerationJob]:
    """Jobs of the last two weeks in the project of the request, newest first. One query."""
    since = timezone.now() - RECENT
    return list(GenerationJob.objects.filter(requested_at__gte=since).select_related("requested_by")[:MAX_LISTED])
