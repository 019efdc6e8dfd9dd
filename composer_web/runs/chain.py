"""Runs that start after another one, from the policy that it trains.

Such a run waits in state `queued`. It starts when the run before it has finished, and fails when that one fails or is
cancelled. Both happen in the transaction that ends the run before it, so no process that dies leaves one behind.
"""

from __future__ import annotations

from django.db.models import Max, Q, QuerySet

from composer_web.core.errors import Conflict
from composer_web.policies.models import Checkpoint, Policy
from composer_web.policies.selectors import Weights, resolve
from composer_web.policies.services import create_child
from composer_web.runs.models import RUN_FINAL, Run, RunState

WAITING = Q(state=RunState.QUEUED, start_after__isnull=False) & ~Q(start_after__state=RunState.FINISHED)
"""Queued runs that no worker may take yet."""


def output(run: Run) -> Policy:
    """The policy that the run trains, created at its start or as soon as another run is to start from it."""
    if run.policy_out is None:
        run.policy_out = Run.objects.select_for_update(no_key=True, of=("self",)).get(pk=run.pk).policy_out
    if run.policy_out is None:
        run.policy_out = create_child(
            name=f"run-{run.pk}",
            parent=run.policy_in,
            parent_version=run.policy_in_version,
            project_id=run.project_id,
        )
        run.save(update_fields=["policy_out"])
    return run.policy_out


def known_weights(run: Run) -> Weights:
    """Weights of the policy that the run trains, or of the first run of its chain while there are none: what settings are
    checked against, since training keeps the architecture. Raises UserError."""
    first: Run | None = run
    while first is not None and first.state != RunState.FINISHED:
        run, first = first, first.start_after
    if first is not None:
        return resolve(output(first).name)
    return resolve(run.policy_in.at(run.policy_in_version))


def final_version(run: Run) -> int:
    """Newest version of the policy that a finished run trained."""
    found = Checkpoint.objects.filter(policy=run.policy_out).aggregate(newest=Max("version"))["newest"]
    return run.steps_total if found is None else int(found)


def locked(run: Run) -> Run | None:
    """The run before this one, which cannot end until this transaction does. None if the run starts after none."""
    if run.start_after_id is None:
        return None
    return Run.objects.select_for_update(no_key=True).get(pk=run.start_after_id)


def waiting_for(run: Run) -> QuerySet[Run]:
    """Queued runs that start after this one, locked, so that nobody cancels them meanwhile."""
    return run.followers.filter(state=RunState.QUEUED).select_for_update(of=("self",), no_key=True).order_by("pk")


def never_started(run: Run) -> QuerySet[Run]:
    """Runs that failed because this one had ended, locked."""
    failed = run.followers.filter(state=RunState.FAILED, started_at=None)
    return failed.select_for_update(of=("self",), no_key=True).order_by("pk")


def cause(before: Run) -> str:
    """Why a run that starts after `before` cannot."""
    why = f": {before.failure}" if before.failure else ""
    return f"it starts from the policy of run {before.pk} ({before.name}), which {_ENDED[before.state]}{why}"


_ENDED = {RunState.FAILED.value: "failed", RunState.CANCELLED.value: "was cancelled"}


def require_possible(before: Run) -> None:
    """Raises Conflict if the run before has ended without a final policy."""
    if before.state in RUN_FINAL and before.state != RunState.FINISHED:
        remedy = (
            "resume that run first"
            if before.state == RunState.FAILED
            else "start a new run from one of its checkpoints, if it has any"
        )
        raise Conflict(f"{cause(before)}; {remedy}", "start_after")


def why_waiting(run: Run) -> str:
    """Which run a queued one waits for. Empty if it waits for none."""
    before = run.start_after
    if run.state != RunState.QUEUED or before is None or before.state == RunState.FINISHED:
        return ""
    need = {RunState.DRAFT.value: ": start it", RunState.PAUSED.value: ": resume it"}.get(before.state, "")
    return (
        f"It waits for run {before.pk} ({before.name}) and starts from the policy that it trains; that run is "
        f"{before.state}{need}."
    )
