"""Requests to delete files of ended runs, and what a page shows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import QuerySet

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import Conflict, UserError
from composer_web.core.queue.outbox import enqueue
from composer_web.evals.models import Evaluation
from composer_web.live.hints import hint
from composer_web.runs.deletion_models import FileDeletion, FileKind
from composer_web.runs.files import amounts, refusals
from composer_web.runs.files.amounts import Amount
from composer_web.runs.files.owners import Owner
from composer_web.runs.models import Run
from trainer.errors import WeightError


@dataclass(frozen=True)
class Plan:
    """Files of one kind: what there is, what a deletion would free, and why it would be refused."""

    kind: str
    label: str
    amount: Amount
    refused: str = ""
    problem: str = ""
    """Why the files could not be counted."""


def plans(run: Run, *, final: bool = False, annotated: bool = False) -> list[Plan]:
    """What a deletion with these options would do to each kind of files. Deletes nothing."""
    return [_plan(run, kind, final=final, annotated=annotated) for kind in FileKind]


def _plan(run: Run, kind: FileKind, *, final: bool, annotated: bool) -> Plan:
    amount, refused, problem = Amount(), "", ""
    try:
        amount = amount_of(run, kind, final=final, annotated=annotated)
    except (ArtifactError, WeightError, OSError) as error:
        problem = str(error)
    try:
        _require(run, kind, final=final)
    except Conflict as error:
        refused = error.message
    return Plan(kind.value, kind.label, amount, refused, problem)


def amount_of(run: Run, kind: str, *, final: bool, annotated: bool) -> Amount:
    """Raises ArtifactError, WeightError, OSError."""
    if kind == FileKind.CHECKPOINTS:
        return amounts.checkpoints(run, final=final)
    if kind == FileKind.VERSIONS:
        return amounts.versions(run)
    return amounts.trajectories(run, annotated=annotated)


def _require(owner: Owner, kind: str, *, final: bool) -> None:
    refusals.require_ended(owner)
    refusals.require_no_open_deletion(owner, kind)
    refusals.require_unused(owner, kind, final=final)


@transaction.atomic
def delete(
    *,
    run: Run,
    kinds: Sequence[str],
    final: bool = False,
    annotated: bool = False,
    actor: User | None = None,
) -> list[FileDeletion]:
    """Have a worker delete these kinds of files of a run that has ended. All of them, or none when one is refused. Raises
    UserError, Conflict."""
    if not kinds:
        raise UserError("kinds", f"kinds: name what to delete, some of {', '.join(FileKind.values)}")
    if unknown := [kind for kind in kinds if kind not in FileKind.values]:
        raise UserError("kinds", f"kinds: {unknown[0]!r} is unknown; use some of {', '.join(FileKind.values)}")
    run = Run.objects.select_for_update(of=("self",), no_key=True).get(pk=run.pk)  # nobody resumes it meanwhile
    kinds = list(dict.fromkeys(kinds))
    for kind in kinds:
        _require(run, kind, final=final)
    made = [
        FileDeletion.objects.create(
            run=run,
            kind=kind,
            final=final and kind == FileKind.CHECKPOINTS,
            annotated=annotated and kind == FileKind.TRAJECTORIES,
            requested_by=actor,
        )
        for kind in kinds
    ]
    audit(
        actor=actor,
        action="run.delete_files",
        target=f"run:{run.pk}",
        kinds=kinds,
        final=final,
        annotated=annotated,
    )
    for deletion in made:
        send(deletion)
    hint(f"run:{run.pk}")
    return made


@transaction.atomic
def expire(*, owner: Owner, days: int) -> FileDeletion:
    """Have a worker delete trajectories that are past their days. Raises Conflict."""
    kind = FileKind.TRAJECTORIES
    of = {"run": owner} if isinstance(owner, Run) else {"evaluation": owner}
    if isinstance(owner, Run):
        Run.objects.select_for_update(of=("self",), no_key=True).get(pk=owner.pk)
    else:
        Evaluation.objects.select_for_update(of=("self",), no_key=True).get(pk=owner.pk)
    owner.refresh_from_db()
    _require(owner, kind, final=False)
    made = FileDeletion.objects.create(kind=kind, **of)
    audit(actor=None, action="trajectories.expire", target=f"{next(iter(of))}:{owner.pk}", days=days)
    send(made)
    return made


def send(deletion: FileDeletion) -> None:
    enqueue("runs.delete_files", {"deletion_id": deletion.pk}, queue="maintenance", key=resource(deletion.pk))


def resource(deletion_id: int) -> str:
    """Name of the lease of the worker that deletes."""
    return f"files:{deletion_id}"


def deletions(run: Run) -> QuerySet[FileDeletion]:
    """What was deleted of a run, newest first."""
    return FileDeletion.objects.filter(run=run).select_related("requested_by").order_by("-pk")
