"""Task reviews: individual opinions, the queue of open reviews, and admission by two reviewers.

A version is admitted when at least two people accept it and fewer reject it. The database keeps that rule
(`triggers.py`); here are the words for it. Whoever may still review a version does not see what others made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from django.db import transaction
from django.db.models import OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from composer_web.accounts.models import User
from composer_web.accounts.scoping import within
from composer_web.accounts.services import audit
from composer_web.core.errors import Conflict, UserError
from composer_web.live.hints import hint
from composer_web.tasks.models import Task, TaskReview, TaskVersion

Decision = Literal["accept", "reject", "withdrawn"]
MAX_NOTE = 2000


@transaction.atomic
def review(*, version: TaskVersion, decision: Decision, actor: User, note: str = "") -> TaskReview:
    """Record a user's opinion of the newest version of a task. Raises UserError, Conflict."""
    if decision not in ("accept", "reject", "withdrawn"):
        raise UserError("decision", f"a review is accept, reject or withdrawn, not {decision!r}")
    if len(note) > MAX_NOTE:
        raise UserError("note", f"a note holds at most {MAX_NOTE} characters, not {len(note)}")
    newest = Task.objects.select_for_update(no_key=True).get(pk=version.task_id).versions.order_by("-number")[0]
    if newest.pk != version.pk:
        raise Conflict(f"{version} is not the newest version any more; review version {newest.number}", "version")
    if version.author_id == actor.pk:
        raise UserError("reviewer", f"you wrote {version} yourself; somebody else reviews it")
    if decision == "withdrawn" and opinion(version, actor) is None:
        raise Conflict(f"there is no review of yours of {version} to withdraw", "decision")
    made = TaskReview.objects.create(task_version=version, reviewer=actor, decision=decision, note=note.strip())
    audit(actor=actor, action=f"task.{decision}", target=f"task_version:{version.pk}")
    hint("tasks")
    return made


def newest_opinions(versions: Iterable[int]) -> QuerySet[TaskReview]:
    """Newest opinion of each user on these versions. The caller's filter removes withdrawn ones."""
    return (
        TaskReview.objects.filter(task_version__in=list(versions))
        .select_related("reviewer")
        .order_by("task_version_id", "reviewer_id", "-id")
        .distinct("task_version_id", "reviewer_id")
    )


def opinions(version: TaskVersion) -> list[TaskReview]:
    """Everybody's current opinion, oldest first."""
    found = [one for one in newest_opinions([version.pk]) if one.decision != "withdrawn"]
    return sorted(found, key=lambda one: one.pk)


def opinion(version: TaskVersion, user: User) -> TaskReview | None:
    """The user's current opinion of the version."""
    found = TaskReview.objects.filter(task_version=version, reviewer=user).order_by("-id").first()
    return None if found is None or found.decision == "withdrawn" else found


def sees_opinions(version: TaskVersion, user: User) -> bool:
    """Whether others' opinions can no longer bias this user: they have given theirs, or may not give any."""
    return not user.ranks("reviewer") or version.author_id == user.pk or opinion(version, user) is not None


def admitted(version: TaskVersion) -> bool:
    """Whether at least two users accept it and fewer reject it."""
    decisions = [one.decision for one in opinions(version)]
    accepts = decisions.count("accept")
    return accepts >= 2 and accepts > decisions.count("reject")


def require_admitted(versions: Sequence[TaskVersion]) -> None:
    """Raises UserError naming the first version that two reviewers have not admitted."""
    by_version: dict[int, list[str]] = {version.pk: [] for version in versions}
    for one in newest_opinions(by_version):
        by_version[one.task_version_id].append(one.decision)
    for version in versions:
        accepts, rejects = (by_version[version.pk].count(kind) for kind in ("accept", "reject"))
        if accepts < 2 or accepts <= rejects:
            raise UserError(
                "tasks",
                f"{version} is not admitted: two reviewers have to accept it, and more than reject it; it has "
                f"{accepts + rejects} review{'s' * (accepts + rejects != 1)}",
            )


# --- the queue --------------------------------------------------------------------------------------------------


def waiting(query: QuerySet[Task], user: User) -> QuerySet[Task]:
    """Tasks whose newest version this user may review but has not reviewed, in creation order."""
    mine = TaskReview.objects.filter(reviewer=user, task_version=OuterRef("newest_version")).order_by("-id")
    said = Coalesce(Subquery(mine.values("decision")[:1]), Value(""))
    rows = query.alias(said_by_me=said).exclude(said_by_me__in=["accept", "reject"])
    return rows.exclude(newest_version__author=user).order_by("pk")


def following(query: QuerySet[Task], user: User, current: Task | None) -> Task | None:
    """Next task of the queue after `current`; at its end, the first skipped one. None if the queue is empty."""
    rows = waiting(query, user)
    if current is None:
        return rows.first()
    return rows.filter(pk__gt=current.pk).first() or rows.exclude(pk=current.pk).first()


def preceding(query: QuerySet[Task], current: Task) -> Task | None:
    """Task before `current` in the filtered list, reviewed or not."""
    return query.filter(pk__lt=current.pk).order_by("-pk").first()


# --- disagreement -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A task whose reviewers disagree about its newest version. `opinions` is empty for users without an opinion
    yet."""

    task: Task
    version: TaskVersion
    reviews: int
    opinions: tuple[TaskReview, ...]
    hidden: bool


def disagreements(user: User, *, limit: int = 200) -> list[Disagreement]:
    """Newest versions that some users accept and others reject, oldest first. Two queries."""
    newest = TaskVersion.objects.filter(task=OuterRef("task")).order_by("-number").values("pk")[:1]
    versions = (
        TaskVersion.objects.filter(pk=Subquery(newest), task__review__in=["disputed", "admitted", "rejected"])
        .select_related("task")
        .defer("spec", "controls")
    )
    known = {version.pk: version for version in within(versions, path="task__project_id", shared=True)}
    by_version: dict[int, list[TaskReview]] = {}
    for one in newest_opinions(known):
        if one.decision != "withdrawn":
            by_version.setdefault(one.task_version_id, []).append(one)
    rows = []
    for pk in sorted(by_version):
        found = by_version[pk]
        if len({one.decision for one in found}) < 2:
            continue
        version = known[pk]
        hidden = (
            user.ranks("reviewer")
            and version.author_id != user.pk
            and user.pk not in {one.reviewer_id for one in found}
        )
        shown = () if hidden else tuple(sorted(found, key=lambda one: one.pk))
        rows.append(Disagreement(version.task, version, len(found), shown, hidden))
    return rows[:limit]


def as_decision(text: str) -> Decision:
    """Decision from a form or URL. Raises UserError."""
    if text not in ("accept", "reject", "withdrawn"):
        raise UserError("decision", f"a review is accept, reject or withdrawn, not {text!r}")
    return cast(Decision, text)
