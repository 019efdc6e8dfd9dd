"""Writes of review queues: make and fill them, label, and let labels keep rollouts and tasks out of training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.live.hints import hint
from composer_web.ops.errors import Conflict, UserError
from composer_web.ops.history import change_state, say_why
from composer_web.review import selectors
from composer_web.review.models import Answer, Label, Queue, QueueItem
from composer_web.review.questions import Flags, Questionnaire, Text
from composer_web.rollouts import quarantine
from composer_web.rollouts.models import FINDING_LEGAL, Finding, Rollout
from composer_web.tasks.models import TaskVersion

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")
MOST_ITEMS = 5000
RULE = "review-label"
"""Rule of the findings that labels raise."""


@transaction.atomic
def create_queue(*, name: str, questionnaire: Questionnaire, title: str = "", reviewers: int = 1, actor: User) -> Queue:
    """An empty queue. Raises UserError, Conflict."""
    if not NAME.fullmatch(name):
        raise UserError("name", f"a name has up to 80 lower-case letters, digits, - and _, not {name[:90]!r}")
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
    """Add recorded rollouts, newest first, that are not in the queue; returns how many. Raises UserError, Conflict."""
    _refuse_closed(queue)
    if not 1 <= limit <= MOST_ITEMS:
        raise UserError("limit", f"1 to {MOST_ITEMS} rollouts, not {limit}")
    fresh = rollouts.exclude(artifact_key="").exclude(queue_items__queue=queue).order_by("-pk")
    ids = list(fresh.values_list("pk", flat=True)[:limit])
    made = QueueItem.objects.bulk_create(
        [QueueItem(queue=queue, rollout_id=pk) for pk in ids], ignore_conflicts=True, batch_size=1000
    )
    audit(actor=actor, action="queue.fill", target=f"queue:{queue.pk}", rollouts=len(made))
    hint("reviews")
    return len(made)


@transaction.atomic
def set_closed(*, queue: Queue, closed: bool, actor: User) -> Queue:
    """A closed queue takes no labels and no rollouts."""
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
    hint("reviews")
    return made


def _refuse_closed(queue: Queue) -> None:
    if queue.closed_at is not None:
        raise Conflict(f"queue {queue.name!r} is closed; open it again first", "queue")


# --- what labels do ---------------------------------------------------------------------------------------------


@transaction.atomic
def exclude(*, queue: Queue, question: str, value: str, tasks: bool = False, actor: User) -> int:
    """Keep out of training what most reviewers labelled so: its rollouts, or (`tasks`) their tasks; returns how many.

    Each is a confirmed finding, so its page says why and dismissing it undoes it: rollouts go into quarantine as long as
    they are not trained on, tasks are not dispatched any more. Raises UserError. Idempotent.
    """
    asked = queue.questionnaire.get(question)
    if isinstance(asked, Text):
        raise UserError("question", f"{question!r} is answered in words; choose another question")
    allowed = [o.value for o in asked.options] if not hasattr(asked, "values") else [str(n) for n in asked.values]
    if value not in allowed:
        raise UserError("value", f"{', '.join(allowed)}; found {value[:60]!r}")
    chosen = selectors.agreed(queue, question, value)
    rollouts = list(Rollout.objects.filter(pk__in=chosen).select_related("group").order_by("pk"))
    reason = f"reviewers of {queue.name} say {question} is {value}"
    if tasks:
        count = _exclude_tasks(rollouts, queue=queue, reason=reason, actor=actor)
    else:
        count = _exclude_rollouts(rollouts, queue=queue, reason=reason, actor=actor)
    audit(
        actor=actor, action="queue.exclude", target=f"queue:{queue.pk}", question=question, value=value, changed=count
    )
    hint("findings", "reviews")
    return count


def _finding(queue: Queue, reason: str, actor: User) -> dict[str, Any]:
    return {
        "source": "monitor",
        "rule": RULE,
        "rule_version": 1,
        "key": f"queue-{queue.pk}",
        "severity": "high",
        "summary": reason,
        "state": "confirmed",
        "decided_by": actor,
        "decided_at": timezone.now(),
        "note": reason,
    }


def _exclude_rollouts(rollouts: Sequence[Rollout], *, queue: Queue, reason: str, actor: User) -> int:
    known = set(
        Finding.objects.filter(rollout__in=rollouts, rule=RULE, key=f"queue-{queue.pk}").values_list(
            "rollout", flat=True
        )
    )
    fresh = [rollout for rollout in rollouts if rollout.pk not in known]
    by_group: dict[int, list[Rollout]] = {}
    for rollout in fresh:
        group = rollout.group
        _confirm(
            Finding(
                subject="rollout",
                run_id=group.run_id,
                task_version_id=group.task_version_id,
                group=group,
                rollout=rollout,
                **_finding(queue, reason, actor),
            ),
            actor,
            reason,
        )
        by_group.setdefault(group.pk, []).append(rollout)
    for held in by_group.values():
        quarantine.settle(rollouts=held, actor=actor.get_username(), reason=reason)
    return len(fresh)


def _exclude_tasks(rollouts: Sequence[Rollout], *, queue: Queue, reason: str, actor: User) -> int:
    versions = {rollout.group.task_version_id for rollout in rollouts}
    known = Finding.objects.filter(subject="task", task_version__in=versions, rule=RULE, key=f"queue-{queue.pk}")
    fresh = versions - set(known.values_list("task_version", flat=True))
    for version in TaskVersion.objects.filter(pk__in=fresh).defer("spec").order_by("pk"):
        _confirm(Finding(subject="task", task_version=version, **_finding(queue, reason, actor)), actor, reason)
        quarantine.settle_task(version=version, actor=actor.get_username(), reason=reason)
    return len(fresh)


def _confirm(finding: Finding, actor: User, reason: str) -> None:
    """Every finding begins open: the database keeps its history."""
    decided = {name: getattr(finding, name) for name in ("decided_by", "decided_at", "note")}
    finding.state, finding.decided_by, finding.decided_at = "open", None, None
    say_why(actor=actor.get_username(), reason=reason)
    finding.save()
    change_state(finding, "confirmed", legal=FINDING_LEGAL, actor=actor.get_username(), reason=reason, **decided)


def flags_of(queue: Queue) -> list[tuple[str, str]]:
    """(question, value) of every flag of the queue: what its page offers for exclusion first."""
    asked = [question for question in queue.questionnaire.questions if isinstance(question, Flags)]
    return [(question.id, option.value) for question in asked for option in question.options]
