"""Why files of a run may not be deleted now: it has not ended, or something uses them. Each names its holder and a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_

from django.db.models import Q

from composer_web.accounts.access import everywhere
from composer_web.core import inference
from composer_web.core.errors import Conflict, UserError
from composer_web.core.queue import leases
from composer_web.evals.models import Evaluation, EvaluationState
from composer_web.rollouts.export_models import Export
from composer_web.rollouts.exports.exported import table
from composer_web.rollouts.exports.jobs import OPEN as OPEN_EXPORT
from composer_web.rollouts.models import GROUP_OPEN
from composer_web.runs.deletion_models import DELETION_OPEN, FileDeletion, FileKind
from composer_web.runs.files import amounts
from composer_web.runs.files.owners import Owner, groups_of, noun, rollouts_of
from composer_web.runs.files.used_checkpoints import uses_of
from composer_web.runs.models import RUN_FINAL, Run
from composer_web.runs.paths import deployment_name
from trainer.inference.contract import InferenceError

PATIENCE = 3.0
"""Seconds that the inference server has to say what it serves."""
REMEDIES = {
    "channel": "promote another version first",
    "run": "wait for that run, or stop it",
    "evaluation": "wait for that evaluation, or cancel it",
    "measurement": "wait for that measurement, or stop it",
    "fork": "wait for that fork, or cancel it",
}
OPEN_EVALUATION = (EvaluationState.PENDING, EvaluationState.RUNNING)


def require_ended(owner: Owner) -> None:
    """Raises Conflict while the run or evaluation may still write."""
    if owner.state == "draft":
        raise Conflict(f"{noun(owner)} is a draft and has no files; nothing is to be deleted", "state")
    ended = RUN_FINAL if isinstance(owner, Run) else ("finished", "failed", "cancelled")
    if owner.state not in ended:
        raise Conflict(f"{noun(owner)} is {owner.state}; stop it, or wait until it has ended", "state")
    if isinstance(owner, Run) and leases.is_held(f"run:{owner.pk}"):
        raise Conflict(f"the trainer of run {owner.pk} still ends its step; try again in a minute", "state")


def require_unused(owner: Owner, kind: str, *, final: bool = False) -> None:
    """Raises Conflict with the first use that stands against deleting these files."""
    if kind == FileKind.TRAJECTORIES:
        uses_ = _of_trajectories(owner)
    elif kind == FileKind.VERSIONS:
        uses_ = _of_versions(_run(owner))
    else:
        uses_ = _of_checkpoints(_run(owner), final=final)
    with everywhere():  # also what another project holds
        for message in uses_:
            raise Conflict(message, kind)


def require_no_open_deletion(owner: Owner, kind: str) -> None:
    """Raises Conflict."""
    if isinstance(owner, Run):
        found = FileDeletion.objects.filter(run=owner)
    else:
        found = FileDeletion.objects.filter(evaluation=owner)
    if found.filter(kind=kind, state__in=DELETION_OPEN).exists():
        raise Conflict(f"the {kind} of {noun(owner)} are being deleted already; wait until that has ended", kind)


def _run(owner: Owner) -> Run:
    assert isinstance(owner, Run), "evaluations have trajectories only"
    return owner


def _of_checkpoints(run: Run, *, final: bool) -> Iterator[str]:
    """Versions that would go and that somebody uses."""
    folders = amounts.steps(run)
    newest = folders[-1].name if folders else ""
    going = {version_of(folder.name) for folder in folders if final or folder.name != newest}
    held: dict[int, list[str]] = {}
    for use in uses_of(run.policy_out) if going and run.policy_out else ():
        if use.version in going:
            held.setdefault(use.version, []).append(use.holder)
    for version, holders in sorted(held.items()):
        remedy = REMEDIES.get(holders[0].partition("-")[0], "end that use first")
        yield f"version {version} of run {run.pk} is used by {', '.join(sorted(holders))}; {remedy}"
    if final:
        for follower in run.followers.filter(started_at=None).exclude(state__in=RUN_FINAL).order_by("pk"):
            yield (
                f"run {follower.pk} ({follower.name}) starts from the newest checkpoint of run {run.pk}; keep that one, or "
                f"cancel run {follower.pk} first"
            )


def version_of(folder: str) -> int:
    return int(folder.removeprefix("step-"))


def _of_versions(run: Run) -> Iterator[str]:
    for pk in _open_evaluations(run):
        yield f"evaluation {pk} plays weight versions of run {run.pk}; wait until it has ended, or cancel it"
    try:
        with inference.admin(timeout=PATIENCE) as server:
            busy = [d for d in server.deployments() if d.name == deployment_name(run) and d.running + d.waiting]
    except InferenceError:  # what does not answer serves nothing
        return
    for deployment in busy:
        yield f"the inference server answers {deployment.running + deployment.waiting} requests of {deployment.name}; wait"


def _of_trajectories(owner: Owner) -> Iterator[str]:
    if isinstance(owner, Run):
        for pk in _open_evaluations(owner):
            yield f"evaluation {pk} of run {owner.pk} is not over; wait until it has ended, or cancel it"
    if groups_of(owner).filter(state__in=GROUP_OPEN).exists():
        yield f"groups of {noun(owner)} are still open; they end within a minute: try again then"
    if export := _export_of(owner):
        yield f"export {export.pk} ({export.owner}) reads rollouts of {noun(owner)}; wait until it is written"


def _open_evaluations(run: Run) -> list[int]:
    rows = Evaluation.objects.filter(run=run, state__in=OPEN_EVALUATION)
    return list(rows.order_by("pk").values_list("pk", flat=True))


def _export_of(owner: Owner) -> Export | None:
    """An unfinished export of rollouts that lists some of these. One query unless there is one."""
    waiting = Export.objects.filter(state__in=OPEN_EXPORT, what="rollouts", project=owner.project_id)
    listed: dict[Export, Q] = {}
    for export in waiting.select_related("owner"):
        try:
            rows = table("rollouts").select(export.query, asker=export.owner)
        except UserError:  # it will fail by its own filters
            continue
        listed[export] = Q(pk__in=rows.order_by().values("pk"))
    mine = rollouts_of(owner)
    if not listed or not mine.filter(reduce(or_, listed.values())).exists():
        return None
    return next((export for export, these in listed.items() if mine.filter(these).exists()), None)
