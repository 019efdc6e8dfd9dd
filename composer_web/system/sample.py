"""Sample data for an empty installation: the toy policy and its suites, which the demo trains on too."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from composer_web.accounts.models import AuditEntry, User
from composer_web.accounts.services import audit
from composer_web.core.queue.outbox import enqueue

TASK, ACTION = "ops.sample_data", "installation.sample_data"
WAIT = timedelta(minutes=5)


@transaction.atomic
def ask_for_sample(*, actor: User) -> None:
    """Have a worker create it. Asking twice creates it once."""
    enqueue(TASK, {}, queue="maintenance", key="sample-data")
    audit(actor=actor, action=ACTION, target="installation")


def sample_state() -> str:
    """ "asked" for as long as a worker may need after somebody asked, else "offered"."""
    since = timezone.now() - WAIT
    return "asked" if AuditEntry.objects.filter(action=ACTION, at__gte=since).exists() else "offered"
