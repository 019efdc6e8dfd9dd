"""Whether a run can go on from where it stopped, after files of it were deleted."""

from __future__ import annotations

from django.db.models import Max, Q

from composer_web.core.errors import Conflict
from composer_web.policies.models import Checkpoint
from composer_web.runs.deletion_models import DELETION_OPEN, FileDeletion, FileKind
from composer_web.runs.models import Run, TrainBatch


def require_files(run: Run) -> None:
    """Raises Conflict if what the run would resume from was deleted, or is being deleted."""
    rows = FileDeletion.objects.filter(Q(items__gt=0) | Q(state__in=DELETION_OPEN), run=run)
    found = {deletion.kind: deletion for deletion in rows.select_related("requested_by").order_by("pk")}
    if not found:
        return
    newest = Checkpoint.objects.filter(policy=run.policy_out_id, removed_at=None).aggregate(at=Max("version"))["at"]
    if (gone := found.get(FileKind.CHECKPOINTS)) and (newest is None or (gone.open and gone.final)):
        raise _refusal(gone, "start a new run from another policy")
    if gone := found.get(FileKind.VERSIONS):
        raise _refusal(gone, _remedy(run, newest))
    if (gone := found.get(FileKind.TRAJECTORIES)) and TrainBatch.objects.filter(run=run, step__gt=newest or 0).exists():
        raise _refusal(gone, f"batches after its checkpoint are among them; {_remedy(run, newest)}")


def _refusal(gone: FileDeletion, rest: str) -> Conflict:
    at = f"{gone.created_at:%Y-%m-%d}"
    kind = FileKind(gone.kind).label
    return Conflict(
        f"run {gone.run_id} cannot be resumed: its {kind} were deleted on {at} by {gone.by}; {rest}", "state"
    )


def _remedy(run: Run, newest: int | None) -> str:
    if newest is None or run.policy_out is None:
        return "duplicate it to train again"
    return f"start a new run from {run.policy_out.at(newest)}"
