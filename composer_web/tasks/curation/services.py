"""Edits of tasks by users: tags, split, suites, instructions; singly or in bulk.

Each change is a row of the history with what was before and after. Undoing a batch makes the opposite changes, as rows of
their own, and only when nothing else has changed the same thing since.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.db import transaction
from django.db.models import Max

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import Conflict, NotFound, UserError
from composer_web.live.hints import hint
from composer_web.tasks.models import Split, Suite, SuiteMembership, Task, TaskChange, TaskVersion
from composer_web.tasks.overlap import refuse_overlap
from composer_web.tasks.reviewing import Decision, admitted, require_admitted, review
from composer_web.tasks.services import request_controls, save_specs

Action = Literal["tag", "untag", "split", "suite", "unsuite"]
ACTIONS: tuple[Action, ...] = ("tag", "untag", "split", "suite", "unsuite")
TAG = re.compile(r"[a-z0-9][a-z0-9 ._:/-]{0,39}")
MAX_TAGS = 20
MAX_TASKS = 5000
Json = Any


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes made by one action. `id` undoes them."""

    id: uuid.UUID
    changed: int
    unchanged: int


@transaction.atomic
def apply(*, tasks: Sequence[Task], action: Action, value: str, actor: User) -> Batch:
    """One action on all of these tasks or on none of them. Raises UserError, NotFound, Conflict.

    `tag` and `untag` take tags by commas, `split` a side or nothing, `suite` and `unsuite` the name of a suite.
    """
    if action not in ACTIONS:
        raise UserError("action", f"{', '.join(ACTIONS)}, not {action!r}")
    if not tasks:
        raise UserError("tasks", "choose at least one task")
    if len(tasks) > MAX_TASKS:
        raise UserError("tasks", f"at most {MAX_TASKS} tasks at once, not {len(tasks)}")
    ids = sorted({task.pk for task in tasks})
    rows = list(Task.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))
    if action in ("tag", "untag"):
        changes = _retag(rows, tags(value), add=action == "tag")
    elif action == "split":
        changes = _resplit(rows, value)
    else:
        changes = (_join if action == "suite" else leave)(rows, suite_by_name(value, lock=True))
    batch = uuid.uuid4()
    record(changes, batch=batch, actor=actor)
    audit(actor=actor, action=f"task.{action}", target=f"batch:{batch}", value=value[:200], tasks=len(changes))
    hint("tasks", *(["suites"] if action in ("suite", "unsuite") else []))
    return Batch(batch, len(changes), len(rows) - len(changes))


def tags(text: str) -> list[str]:
    """Unique tags of a comma-separated text. Raises UserError."""
    found = list(dict.fromkeys(" ".join(part.split()).lower() for part in text.split(",") if part.strip()))
    if not found:
        raise UserError("value", "give at least one tag, several by commas")
    for tag in found:
        if not TAG.fullmatch(tag):
            raise UserError("value", f"a tag has up to 40 letters, digits and . _ : / - not {tag[:60]!r}")
    return found


def _retag(rows: Sequence[Task], wanted: list[str], *, add: bool) -> list[TaskChange]:
    changes = []
    for task in rows:
        after = sorted({*task.tags, *wanted}) if add else [tag for tag in task.tags if tag not in wanted]
        if len(after) > MAX_TAGS:
            raise UserError("value", f"{task} would have {len(after)} tags; at most {MAX_TAGS}")
        if after != task.tags:
            changes.append(TaskChange(task=task, field="tags", before=task.tags, after=after))
            task.tags = after
    Task.objects.bulk_update([change.task for change in changes], ["tags"], batch_size=500)
    return changes


def _resplit(rows: Sequence[Task], side: str) -> list[TaskChange]:
    if side and side not in Split.values:
        raise UserError("value", f"a split is {', '.join(Split.values)} or empty, not {side!r}")
    refuse_side(rows, side)
    changed = [task for task in rows if task.split != side]
    changes = [TaskChange(task=task, field="split", before=task.split, after=side) for task in changed]
    Task.objects.filter(pk__in=[task.pk for task in changed]).update(split=side)
    return changes


def refuse_side(rows: Sequence[Task], side: str) -> None:
    """Raises UserError if a task is in a suite of the other split."""
    if not side:
        return
    members = SuiteMembership.objects.filter(task_version__task__in=rows).select_related("suite", "task_version__task")
    training = members.filter(suite__purpose="train", suite__retired_at=None)
    wrong = members.exclude(suite__purpose="train") if side == "train" else training
    found = wrong.defer("task_version__spec").first()
    if found is not None:
        raise UserError(
            "value",
            f"{found.task_version.task} is in suite {found.suite.name!r} ({found.suite.get_purpose_display().lower()}); "
            f"take it out of that suite before it goes to {side!r}",
        )


# --- suites -----------------------------------------------------------------------------------------------------


def suite_by_name(name: str, *, lock: bool = False) -> Suite:
    """Raises NotFound."""
    query = Suite.objects.select_for_update(no_key=True) if lock else Suite.objects.all()
    found = query.filter(name=name).first()
    if found is None:
        raise NotFound("suite", f"{name!r}; make it first")
    return found


@transaction.atomic
def open_suite(*, name: str, purpose: str, description: str = "", reviewed: bool, actor: User) -> Suite:
    """Create an empty suite to be filled manually. `reviewed`: only admitted versions may join. Raises UserError,
    Conflict."""
    if purpose not in Split.values:
        raise UserError("purpose", f"{', '.join(Split.values)}, not {purpose!r}")
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,79}", name):
        raise UserError("name", f"a name has up to 80 lower-case letters, digits, - and _, not {name[:90]!r}")
    made, created = Suite.objects.get_or_create(
        name=name,
        defaults={
            "purpose": purpose,
            "description": description,
            "reviewed": reviewed,
            "recipe": {"source": "curation"},
        },
    )
    if not created:
        raise Conflict(f"there is a suite {name!r} already", "name")
    audit(actor=actor, action="suite.open", target=f"suite:{made.pk}", name=name, purpose=purpose, reviewed=reviewed)
    hint("suites")
    return made


def is_used(suite: Suite) -> bool:
    """Whether a run, an evaluation or a release has used the suite."""
    from composer_web.evals.models import Evaluation, Release
    from composer_web.rollouts.models import Group

    return (
        Evaluation.objects.filter(suite=suite).exists()
        or Release.objects.filter(suite=suite).exists()
        or Group.objects.filter(run__config__stage__suite=suite.name).exists()
    )


def refuse_used(suite: Suite) -> None:
    """Raises Conflict if a run, an evaluation or a release has used the suite."""
    if is_used(suite):
        raise Conflict(f"suite {suite.name!r} has been used and may not change; put the tasks in a new one", "value")


def named(slugs: Sequence[str]) -> list[Task]:
    """Tasks with these slugs. Raises NotFound naming the first unknown one."""
    found = {task.slug: task for task in Task.objects.filter(slug__in=slugs)}
    for slug in slugs:
        if slug not in found:
            raise NotFound("task", slug)
    return [found[slug] for slug in slugs]


@transaction.atomic
def decide(
    *, task: Task, version: TaskVersion, decision: Decision, actor: User, note: str = "", into: str = ""
) -> bool | None:
    """Review a version and, when it is accepted, put the task into the suite `into`; both or neither.

    True: it is in the suite. False: the suite asks for a second reviewer, who then puts it there. None: no suite was asked
    for. Raises UserError, NotFound, Conflict.
    """
    review(version=version, decision=decision, actor=actor, note=note)
    if decision != "accept" or not into:
        return None
    if suite_by_name(into).reviewed and not admitted(version):
        return False
    apply(tasks=[task], action="suite", value=into, actor=actor)
    return True


def _newest(rows: Sequence[Task]) -> dict[int, TaskVersion]:
    query = TaskVersion.objects.filter(task__in=rows).select_related("task").order_by("task_id", "-number")
    return {version.task_id: version for version in query.distinct("task_id")}


def _join(rows: Sequence[Task], suite: Suite) -> list[TaskChange]:
    if suite.retired_at is not None:
        raise Conflict(f"suite {suite.name!r} is retired; use {suite.replaced_by or 'another one'}", "value")
    refuse_used(suite)
    newest = _newest(rows)
    held = {
        m.task_version.task_id: m for m in suite.memberships.select_related("task_version").defer("task_version__spec")
    }
    wanted = [task for task in rows if task.pk not in held or held[task.pk].task_version_id != newest[task.pk].pk]
    versions = [newest[task.pk] for task in wanted]
    for version in versions:
        if version.controls_ok is False:
            raise UserError("tasks", f"{version} fails its validation; no run or benchmark may use it")
    wrong = {"train"} if suite.purpose != "train" else {"held-out", "benchmark"}
    for task in wanted:
        if task.split in wrong:
            raise UserError(
                "tasks", f"{task} has the split {task.split!r}; suite {suite.name!r} is for {suite.purpose}"
            )
    if suite.purpose != "train":
        _refuse_trained(wanted, suite)
    if suite.reviewed:
        require_admitted(versions)
    if versions:
        kept = suite.versions.exclude(task__in=wanted)
        refuse_overlap([version.bundle for version in (*kept, *versions)], purpose=suite.purpose)
    end = suite.memberships.aggregate(last=Max("position"))["last"]
    place = 0 if end is None else end + 1
    changes: list[TaskChange] = []
    fresh: list[SuiteMembership] = []
    for task, version in zip(wanted, versions, strict=True):
        before = held.get(task.pk)
        changes.append(suite_change(task, suite, before.task_version if before else None, version))
        if before is None:
            fresh.append(SuiteMembership(suite=suite, task_version=version, position=place + len(fresh)))
        else:
            SuiteMembership.objects.filter(pk=before.pk).update(task_version=version)
    SuiteMembership.objects.bulk_create(fresh, batch_size=2000)
    missing = [version.pk for version in versions if version.proof is None]
    if missing:
        request_controls(missing)
    return changes


def _refuse_trained(rows: Sequence[Task], suite: Suite) -> None:
    """Raises UserError (code `in_training`) for tasks of live training suites."""
    held = SuiteMembership.objects.filter(task__in=rows, suite__purpose="train", suite__retired_at=None)
    found = list(held.select_related("suite", "task").order_by("slug", "suite__name"))
    if found:
        names = {member.slug: member.suite.name for member in found}
        shown = ", ".join(f"{slug} (in {name})" for slug, name in list(names.items())[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise UserError(
            "tasks",
            f"suite {suite.name!r} measures policies, and these tasks are trained on: {shown}{more}; move them out of "
            "training first",
            code="in_training",
        )


def leave(rows: Sequence[Task], suite: Suite) -> list[TaskChange]:
    """Take tasks out of a suite. The changes are not recorded yet. Raises Conflict for a suite that has been used."""
    refuse_used(suite)
    members = suite.memberships.filter(task_version__task__in=rows).select_related("task_version__task")
    changes = [
        suite_change(m.task_version.task, suite, m.task_version, None) for m in members.defer("task_version__spec")
    ]
    members.delete()
    return changes


def suite_change(task: Task, suite: Suite, before: TaskVersion | None, after: TaskVersion | None) -> TaskChange:
    """A task's version in a suite before and after, for the history."""

    def side(version: TaskVersion | None) -> Json:
        return {"suite": suite.name, "version": version.number if version else None}

    return TaskChange(task=task, field="suite", before=side(before), after=side(after))


# --- instructions -----------------------------------------------------------------------------------------------


@transaction.atomic
def edit_instruction(*, task: Task, text: str, actor: User) -> TaskVersion:
    """The next version of a task, with other words; its controls are asked for. Suites keep the version that they have.

    Raises UserError for words that are the same, too long, or tell the answer.
    """
    locked = Task.objects.select_for_update(no_key=True).get(pk=task.pk)
    before = locked.versions.order_by("-number")[0]
    text = text.replace("\r\n", "\n").strip()
    if not 1 <= len(text) <= 20_000:
        raise UserError("instruction", f"an instruction has 1 to 20,000 characters, not {len(text)}")
    if text == before.bundle.instruction:
        raise UserError("instruction", "the words are the same as before")
    (made,) = save_specs([before.bundle.model_copy(update={"instruction": text})])
    if made.task_id != task.pk or made.number <= before.number:
        raise Conflict(f"version {made.number} had exactly these words; a bundle is never stored twice", "instruction")
    made.author = actor
    made.save(update_fields=["author"])
    change = TaskChange(
        task=locked, field="instruction", before={"version": before.number}, after={"version": made.number}
    )
    record([change], batch=uuid.uuid4(), actor=actor)
    request_controls([made.pk])
    audit(actor=actor, action="task.edit", target=f"task_version:{made.pk}", before=before.number, after=made.number)
    hint("tasks")
    return made


# --- history ----------------------------------------------------------------------------------------------------


def record(changes: Sequence[TaskChange], *, batch: uuid.UUID, actor: User) -> None:
    """Write changes into the history as one batch."""
    for change in changes:
        change.batch, change.actor, change.actor_name = batch, actor, actor.get_username()
    TaskChange.objects.bulk_create(changes, batch_size=1000)


def batch_of(text: str) -> uuid.UUID:
    """Raises UserError for an invalid batch id."""
    try:
        return uuid.UUID(text)
    except ValueError:
        raise UserError("batch", f"{text[:60]!r} names no batch of changes") from None


def require_may_undo(*, batch: uuid.UUID, actor: User) -> None:
    """Operators may undo all changes, reviewers only their own. Raises UserError."""
    if actor.may("operator"):
        return
    if TaskChange.objects.filter(batch=batch).exclude(actor=actor).exists():
        raise UserError("batch", "somebody else made these changes; an operator can undo them")


@transaction.atomic
def undo(*, batch: uuid.UUID, actor: User) -> Batch:
    """Revert every change of a batch, or none. Raises NotFound, Conflict, UserError."""
    changes = list(TaskChange.objects.filter(batch=batch).select_related("task", "undone_by").order_by("pk"))
    if not changes:
        raise NotFound("batch of changes", batch)
    if any(change.field == "instruction" for change in changes):
        raise Conflict("a new version stays: versions never change. Edit the instruction again instead", "batch")
    if any(hasattr(change, "undone_by") for change in changes):
        raise Conflict("these changes were undone already", "batch")
    rows = {task.pk: task for task in Task.objects.select_for_update(no_key=True).filter(changes__in=changes)}
    made = []
    for change in changes:
        task = rows[change.task_id]
        _UNDO[change.field](task, change)
        made.append(TaskChange(task=task, field=change.field, before=change.after, after=change.before, undoes=change))
    again = uuid.uuid4()
    record(made, batch=again, actor=actor)
    audit(actor=actor, action="task.undo", target=f"batch:{batch}", tasks=len(made))
    hint("tasks", "suites")
    return Batch(again, len(made), 0)


def _refuse_changed(change: TaskChange, now: Json) -> None:
    if now != change.after:
        raise Conflict(
            f"the {change.field} of {change.task} changed again since: {change.after!r} became {now!r}; nothing was undone",
            "batch",
        )


def _undo_tags(task: Task, change: TaskChange) -> None:
    _refuse_changed(change, task.tags)
    Task.objects.filter(pk=task.pk).update(tags=change.before)


def _undo_split(task: Task, change: TaskChange) -> None:
    _refuse_changed(change, task.split)
    refuse_side([task], change.before)
    Task.objects.filter(pk=task.pk).update(split=change.before)


def _undo_suite(task: Task, change: TaskChange) -> None:
    suite = suite_by_name(change.after["suite"], lock=True)
    refuse_used(suite)
    member = suite.memberships.filter(task_version__task=task).select_related("task_version").first()
    _refuse_changed(change, {"suite": suite.name, "version": member.task_version.number if member else None})
    if member is not None:
        member.delete()
    if change.before["version"] is None:
        return
    version = task.versions.get(number=change.before["version"])
    if suite.reviewed:
        require_admitted([version])
    last = suite.memberships.aggregate(last=Max("position"))["last"]
    place = member.position if member else 0 if last is None else last + 1
    SuiteMembership.objects.create(suite=suite, task_version=version, position=place)


_UNDO: dict[str, Callable[[Task, TaskChange], None]] = {
    "tags": _undo_tags,
    "split": _undo_split,
    "suite": _undo_suite,
}
