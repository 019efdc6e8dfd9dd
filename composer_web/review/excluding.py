"""Labels that exclude rollouts and tasks from training. Each is a confirmed finding; dismissal undoes the effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import UserError
from composer_web.core.history import change_state, say_why
from composer_web.live.hints import hint
from composer_web.review import selectors
from composer_web.review.blind import RULE
from composer_web.review.models import Queue
from composer_web.review.questions import Choice, Flags, Scale, Text
from composer_web.rollouts.dispatch import quarantine
from composer_web.rollouts.models import FINDING_LEGAL, Finding, Rollout
from composer_web.tasks.models import TaskVersion


@transaction.atomic
def exclude(*, queue: Queue, question: str, value: str, tasks: bool = False, actor: User) -> int:
    """Keep out of training what most reviewers labelled so: its rollouts, or (`tasks`) their tasks; returns how many.

    Each is a confirmed finding, so its page says why and dismissing it undoes it: rollouts go into quarantine as long as
    they are not trained on, tasks are not dispatched any more. Raises UserError. Idempotent.
    """
    asked = queue.questionnaire.get(question)
    if isinstance(asked, Text):
        raise UserError("question", f"{question!r} is answered in words; choose another question")
    if value not in asked.answers:
        raise UserError("value", f"{', '.join(asked.answers)}; found {value[:60]!r}")
    chosen = selectors.agreed(queue, question, value)
    rollouts = list(Rollout.objects.filter(pk__in=chosen).select_related("group").order_by("pk"))
    reason = f"reviewers of {queue.name} say {question} is {value}"
    if tasks:
        count = _exclude_tasks(rollouts, queue=queue, reason=reason, actor=actor)
    else:
        count = exclude_rollouts(rollouts, key=key_of(queue), reason=reason, actor=actor)
    audit(
        actor=actor, action="queue.exclude", target=f"queue:{queue.pk}", question=question, value=value, changed=count
    )
    hint("findings", "reviews")
    return count


def _finding(key: str, reason: str, actor: User) -> dict[str, Any]:
    return {
        "source": "monitor",
        "rule": RULE,
        "rule_version": 1,
        "key": key,
        "severity": "high",
        "summary": reason,
        "state": "confirmed",
        "decided_by": actor,
        "decided_at": timezone.now(),
        "note": reason,
    }


def key_of(queue: Queue) -> str:
    """Tells the findings of a queue's labels apart from those of other queues and of annotations."""
    return f"queue-{queue.pk}"


def exclude_rollouts(rollouts: Sequence[Rollout], *, key: str, reason: str, actor: User) -> int:
    """Raise a confirmed finding about each that has none of this key yet; returns how many."""
    known = set(Finding.objects.filter(rollout__in=rollouts, rule=RULE, key=key).values_list("rollout", flat=True))
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
                **_finding(key, reason, actor),
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
    known = Finding.objects.filter(subject="task", task_version__in=versions, rule=RULE, key=key_of(queue))
    fresh = versions - set(known.values_list("task_version", flat=True))
    for version in TaskVersion.objects.filter(pk__in=fresh).defer("spec").order_by("pk"):
        _confirm(Finding(subject="task", task_version=version, **_finding(key_of(queue), reason, actor)), actor, reason)
        quarantine.settle_task(version=version, actor=actor.get_username(), reason=reason)
    return len(fresh)


def _confirm(finding: Finding, actor: User, reason: str) -> None:
    """Every finding begins open: the database keeps its history."""
    decided = {name: getattr(finding, name) for name in ("decided_by", "decided_at", "note")}
    finding.state, finding.decided_by, finding.decided_at = "open", None, None
    say_why(actor=actor.get_username(), reason=reason)
    finding.save()
    change_state(finding, "confirmed", legal=FINDING_LEGAL, actor=actor.get_username(), reason=reason, **decided)


def answers_of(queue: Queue) -> list[tuple[Choice | Flags | Scale, list[tuple[str, str]]]]:
    """Every answer that can keep something out, as (value, words) by question: flags first."""
    asked = [question for question in queue.questionnaire.questions if not isinstance(question, Text)]
    asked.sort(key=lambda question: not isinstance(question, Flags))
    return [
        (question, [(value, value) for value in question.answers])
        if isinstance(question, Scale)
        else (question, [(option.value, option.label) for option in question.options])
        for question in asked
    ]
