"""Trajectories of ended runs and evaluations past `OPENCOMPOSER_TRAJECTORY_DAYS`, and deletions that stand still."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from composer_web.core.errors import Conflict
from composer_web.core.queue import leases
from composer_web.env import env
from composer_web.evals.models import Evaluation
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.selectors import readable
from composer_web.runs.deletion_models import DELETION_OPEN, FileDeletion
from composer_web.runs.files import services
from composer_web.runs.files.kept import kept
from composer_web.runs.files.owners import Owner, noun, rollouts_of
from composer_web.runs.models import RUN_FINAL, Run

log = logging.getLogger(__name__)
AT_ONCE = 20
"""Runs and evaluations whose trajectories one call asks to delete; the next hour takes the following ones."""


def prune() -> list[FileDeletion]:
    """Ask for what is past its days, and again for what no worker does. Returns what is newly asked for."""
    for deletion in FileDeletion.objects.filter(state__in=DELETION_OPEN):
        if not leases.is_held(services.resource(deletion.pk)):
            services.send(deletion)
    days = env().trajectory_days
    made: list[FileDeletion] = []
    for owner in _past(days) if days else ():
        if len(made) == AT_ONCE:
            break
        rows = rollouts_of(owner)
        if rows.count() <= len(kept(rows, annotated=False)):
            continue
        try:
            made.append(services.expire(owner=owner, days=days))
        except Conflict as error:  # something uses them; the next hour tries again
            log.info("trajectories of %s stay: %s", noun(owner), error)
    return made


def _past(days: int) -> Iterator[Owner]:
    """Ended runs, and evaluations of their own, that have trajectories and ended so many days ago, longest first."""
    limit = timezone.now() - timedelta(days=days)
    mine = Q(group__run=OuterRef("pk")) | Q(group__evaluation__run=OuterRef("pk"))
    runs = Run.objects.filter(Exists(readable(Rollout.objects.filter(mine))), state__in=RUN_FINAL)
    yield from runs.filter(finished_at__lt=limit).order_by("finished_at").iterator(chunk_size=100)
    recorded = readable(Rollout.objects.filter(group__evaluation=OuterRef("pk")))
    evaluations = Evaluation.objects.filter(Exists(recorded), run=None, state__in=("finished", "failed", "cancelled"))
    yield from evaluations.filter(finished_at__lt=limit).order_by(F("finished_at")).iterator(chunk_size=100)
