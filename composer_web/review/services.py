"""Writes of review queues: create, fill, label. (Effects of labels: `excluding.py`, `label_rules.py`.)"""

from __future__ import annotations

import re
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import Conflict, UserError
from composer_web.live.hints import hint
from composer_web.review import label_rules
from composer_web.review.annotated import QUEUE
from composer_web.review.filling import recorded
from composer_web.review.models import Answer, Label, Queue, QueueItem
from composer_web.review.questions import Questionnaire, Text
from composer_web.rollouts.models import Rollout

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")
MAX_ITEMS = 5000


@transaction.atomic
def create_queue(*, name: str, questionnaire: Questionnaire, title: str = "", reviewers: int = 1, actor: User) -> Queue:
    """Create an empty queue. Raises UserError, Conflict."""
    if not NAME.fullmatch(name):
        raise UserError("name", f"a name has up to 80 lower-case letters, digits, - and _, not {name[:90]!r}")
    if name == QUEUE:
        raise UserError("name", f"{name!r} stands for annotations in label rules; choose another name")
    if not 1 <= reviewers <= 9:
        raise UserError("reviewers", f"1 to 9 reviewers of each rollout, not {reviewers}")
    if Queue.objects.filter(name=name).exists():
        raise Conflict(f"there is a queue {name!r} already", "name")
    queue = Queue.objects.create(
        name=name,
        title=title.strip()[:200] or name,
        questions=questionnaire.model_dump(mode="json"),
        reviewers=reviewers,
        created_by=actor,
    )
    audit(actor=actor, action="queue.create", target=f"queue:{queue.pk}", name=name, reviewers=reviewers)
    hint("reviews")
    return queue


@transaction.atomic
def fill(*, queue: Queue, rollouts: QuerySet[Rollout], limit: int = 200, actor: User) -> int:
    """Add recorded rollouts not in the queue yet, newest first. Returns their number. Raises UserError, Conflict."""
    _refuse_closed(queue)
    if not 1 <= limit <= MAX_ITEMS:
        raise UserError("limit", f"1 to {MAX_ITEMS} rollouts, not {limit}")
    ids = list(recorded(rollouts, queue).values_list("pk", flat=True)[:limit])
    made = QueueItem.objects.bulk_create(
        [QueueItem(queue=queue, rollout_id=pk) for pk in ids], ignore_conflicts=True, batch_size=1000
    )
    audit(actor=actor, action="queue.fill", target=f"queue:{queue.pk}", rollouts=len(made))
    hint("reviews")
    return len(made)


@transaction.atomic
def set_closed(*, queue: Queue, closed: bool, actor: User) -> Queue:
    """Close or reopen a queue. A closed queue accepts no labels and no rollouts."""
    queue.closed_at = timezone.now() if closed else None
    queue.save(update_fields=["closed_at"])
    audit(actor=actor, action="queue.close" if closed else "queue.open", target=f"queue:{queue.pk}")
    hint("reviews")
    return queue


@transaction.atomic
def label(*, item: QueueItem, answers: dict[str, Any], actor: User) -> Label:
    """One person's answers about one rollout; again, they replace that person's earlier ones, which stay in the history.

    Raises UserError that names the questions, Conflict when the queue is closed or others have labelled it enough.
    """
    row = QueueItem.objects.select_for_update(no_key=True, of=("self",)).select_related("queue").get(pk=item.pk)
    queue = row.queue
    _refuse_closed(queue)
    questionnaire = queue.questionnaire
    clean = questionnaire.check(answers)
    first = not Label.objects.filter(item=row, reviewer=actor).exists()
    if first and row.labelled_by >= queue.reviewers:
        raise Conflict(f"rollout {row.rollout_id} has its {queue.reviewers} reviews already; take the next one", "item")
    made = Label.objects.create(item=row, reviewer=actor, answers=clean)
    Answer.objects.filter(item=row, reviewer=actor).delete()
    texts = {question.id for question in questionnaire.questions if isinstance(question, Text)}
    Answer.objects.bulk_create(
        [
            Answer(item=row, reviewer=actor, question=name, value=one)
            for name, value in clean.items()
            if name not in texts
            for one in (value if isinstance(value, list) else [value])
        ]
    )
    if first:
        row.labelled_by += 1
        row.save(update_fields=["labelled_by"])
    audit(actor=actor, action="rollout.label", target=f"rollout:{row.rollout_id}", queue=queue.name)
    label_rules.apply(item=row, actor=actor)
    hint("reviews")
    return made


def _refuse_closed(queue: Queue) -> None:
    if queue.closed_at is not None:
        raise Conflict(f"queue {queue.name!r} is closed; open it again first", "queue")
