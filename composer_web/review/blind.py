"""Information hidden from reviewers until they have answered: others' labels and their consequences.

Whoever may still answer, and has not, is blind to a rollout. Its pages then lack others' labels, the findings that labels raised
and the quarantine that these may have caused. Lists, filters, files and the API leave them out for reviewers; operators and
admins, who let labels exclude and undo it, find them there.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, F, OuterRef, Q, QuerySet

from composer_web.accounts import access
from composer_web.accounts.models import Role, User
from composer_web.review.models import Label, QueueItem
from composer_web.rollouts.models import Finding, Rollout

RULE = "review-label"
"""Rule of the findings that labels raise."""


def unanswered(user_id: int) -> QuerySet[QueueItem]:
    """What this person may still answer and has not: open queues, rollouts that lack reviewers."""
    mine = Label.objects.filter(item=OuterRef("pk"), reviewer=user_id)
    return QueueItem.objects.filter(~Exists(mine), queue__closed_at=None, labelled_by__lt=F("queue__reviewers"))


def blind_in(rollout: Rollout, user: User) -> set[int]:
    """Queues in which this person may answer about it and has not. For its own pages, whatever role it is that may answer."""
    if not user.ranks(Role.REVIEWER):
        return set()
    return set(unanswered(user.pk).filter(rollout=rollout).values_list("queue_id", flat=True))


def unsaid(rollout: Rollout) -> bool:
    """Whether labels have kept it out of training, which its page does not say to who is blind."""
    return Finding.objects.filter(rollout=rollout, rule=RULE).exists()


def items() -> QuerySet[QueueItem]:
    """Those about which the request in progress is told nothing."""
    now = access.current()
    return unanswered(now.user_id) if now is not None and now.role == Role.REVIEWER else QueueItem.objects.none()


def _of(column: str) -> Exists | None:
    found = items()
    return None if found.query.is_empty() else Exists(found.filter(rollout=OuterRef(column)))


def findings() -> Q | Exists:
    """Condition on findings that the request may see."""
    found = _of("rollout")
    return Q() if found is None else ~Q(found, rule=RULE)


def quarantines(column: str) -> Any:
    """Condition on rows whose `column` is a rollout: its quarantine may be told, because no finding of labels is behind it."""
    found = _of(column)
    if found is None:
        return Q()
    return ~Q(found, Exists(Finding.objects.filter(rollout=OuterRef(column), rule=RULE)))
