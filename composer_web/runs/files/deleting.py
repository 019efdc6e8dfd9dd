"""Carries out a deletion of files. Idempotent: a second delivery does nothing, or goes on after a kill."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import Conflict
from composer_web.core.queue import leases
from composer_web.core.queue.outbox import enqueue
from composer_web.live.hints import hint
from composer_web.runs.deletion_models import DELETION_OPEN, DeletionState, FileDeletion, FileKind
from composer_web.runs.files import checkpoints, refusals, trajectories, versions
from composer_web.runs.files.checkpoints import StillUsed
from composer_web.runs.files.owners import Owner
from composer_web.runs.files.services import resource
from composer_web.runs.models import Run
from trainer.errors import WeightError

AGAIN_SECONDS = 60.0
"""Pause before a store that did not answer is tried again."""


def carry_out(deletion_id: int) -> str:
    """Returns what became of it, for the log. Raises LeaseLost where another worker deletes by now."""
    rows = FileDeletion.objects.select_related("run", "evaluation")
    deletion = rows.filter(pk=deletion_id, state__in=DELETION_OPEN).first()
    if deletion is None:
        return "nothing to do"
    owner = deletion.run or deletion.evaluation
    assert owner is not None, "a deletion has one owner"
    _say(deletion, state=DeletionState.RUNNING, cause="")
    try:
        _carry_out(deletion, owner)
    except (Conflict, StillUsed) as error:
        _say(deletion, state=DeletionState.STOPPED, cause=str(error)[:2000], finished_at=timezone.now())
        return f"stopped: {error}"
    except (ArtifactError, WeightError, OSError) as error:
        _say(deletion, cause=f"{error}; it is tried again in a minute"[:2000])
        enqueue(
            "runs.delete_files", {"deletion_id": deletion.pk}, queue="maintenance", key=f"again:{resource(deletion.pk)}",
            delay=AGAIN_SECONDS,
        )  # fmt: skip
        return f"later: {error}"
    _say(deletion, state=DeletionState.DONE, finished_at=timezone.now())
    return f"{deletion.items} {deletion.kind}, {deletion.bytes:,} bytes"


def _carry_out(deletion: FileDeletion, owner: Owner) -> None:
    refusals.require_ended(owner)
    refusals.require_unused(owner, deletion.kind, final=deletion.final)
    if deletion.kind == FileKind.TRAJECTORIES:
        trajectories.delete(deletion, owner)
        return
    assert isinstance(owner, Run), "evaluations have trajectories only"
    (checkpoints if deletion.kind == FileKind.CHECKPOINTS else versions).delete(deletion, owner)


@transaction.atomic
def _say(deletion: FileDeletion, **values: object) -> None:
    leases.fence()
    FileDeletion.objects.filter(pk=deletion.pk).update(**values)
    if deletion.run_id:
        hint(f"run:{deletion.run_id}")
