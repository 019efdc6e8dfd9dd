"""Writes of groups and rollouts: claim under a lease, accept in one transaction. (Dispatch: dispatch.py.)"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db import DataError, transaction
from django.utils import timezone

from composer_web.core.history import change_state, say_why
from composer_web.core.queue import leases
from composer_web.core.queue.outbox import enqueue
from composer_web.live.hints import hint
from composer_web.rollouts.dispatch import advantages, findings, verdicts
from composer_web.rollouts.dispatch.pump import (
    after_end,
    dispatch_evaluation,
    drop,
    drop_open,
    owner_topics,
    pump,
    requeue,
)
from composer_web.rollouts.dispatch.verdicts import Graded
from composer_web.rollouts.models import GROUP_LEGAL, Group, Rollout, RolloutState
from composer_web.rollouts.review_hooks import review
from composer_web.runs.models import RUN_FINAL, Run
from composer_web.runs.services import add_event
from sandbox.grading.audit import Finding
from sandbox.grading.verdict.outcomes import Cause, Loss
from sandbox.storable import storable_text
from trainer.config import RLConfig
from trainer.orchestrator.batch_scheduler import stale_loss
from trainer.rollouts.audit import MIN_REMAINING

__all__ = [
    "Audited",
    "Claim",
    "Graded",
    "accept",
    "claim",
    "consume",
    "dispatch_evaluation",
    "drop",
    "drop_claimed",
    "drop_open",
    "drop_stale",
    "drop_unusable",
    "fail",
    "give_back",
    "pump",
    "recover",
    "requeue",
]

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
"""Attempts of a whole group before it is dropped and replaced. Its episodes have their own retries."""

RETRY_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Claim:
    """A group that this worker may run, with the lease that fences its writes."""

    group: Group
    held: leases.Held


@transaction.atomic
def claim(*, group_id: int, owner: str, seconds: float) -> Claim | None:
    """Claim a dispatched group. None if it is finished, held by another worker, or its run has ended (then it is
    dropped)."""
    group = (
        Group.objects.select_for_update(of=("self",))
        .select_related("run", "evaluation", "fork__parent", "task_version__task")
        .get(pk=group_id)
    )
    if group.state != "dispatched":
        return None
    ended = (
        group.run.state in RUN_FINAL
        if group.run
        else group.evaluation is not None and group.evaluation.state != "running"
    )
    if ended:
        drop(group=group, loss=Loss(Cause.CANCELLED, "its run or evaluation has ended"))
        return None
    held = leases.take(f"group:{group_id}", owner=owner, seconds=seconds)
    if held is None:
        return None
    change_state(group, "running", legal=GROUP_LEGAL, actor=owner, reason="claimed", attempts=group.attempts + 1)
    Rollout.objects.filter(group=group, state="dispatched").update(state=RolloutState.RUNNING)
    hint(f"group:{group.pk}", *owner_topics(group))
    return Claim(group, held)


@dataclass(frozen=True, slots=True)
class Audited:
    """Audit findings of a group's rollouts, by sample, and the samples that the run's policy excludes."""

    found: Mapping[int, Sequence[Finding]]
    out: frozenset[int]


@transaction.atomic
def accept(
    *,
    group: Group,
    held: leases.Held,
    graded: Sequence[Graded],
    train_key: str,
    oldest_version: int,
    infra_errors: Sequence[Loss],
    audit: Audited | None = None,
) -> bool:
    """Store every verdict and accept the group, in one transaction fenced by the lease. Raises LeaseLost.

    False when the group was accepted or dropped meanwhile: nothing is written a second time. Then dispatches what
    the gate now admits. Without a `train_key` in a run, what is left beside the quarantine is too little to learn
    from: the verdicts count, and the group is dropped.
    """
    leases.require(held)
    row = Group.objects.select_for_update(of=("self",)).get(pk=group.pk)
    if row.state != "running":
        return False
    verdicts.write(row, graded, actor=held.owner)
    out = audit.out if audit else frozenset()
    if audit is not None:
        _write_findings(row, audit)
        if out and len(graded) - len(out) < MIN_REMAINING:
            leases.release(held)
            cause = f"dropped: {len(out)} of {len(graded)} rollouts are in quarantine"
            drop(group=row, loss=Loss(Cause.QUARANTINED, cause), actor=held.owner)
            return True
    by_sample = {
        t.sample: t.reward for t in (g.trajectory for g in graded) if t.reward is not None and t.sample not in out
    }
    rewards = list(by_sample.values())
    change_state(
        row,
        "accepted",
        legal=GROUP_LEGAL,
        actor=held.owner,
        reason="all rollouts have verdicts",
        oldest_version=oldest_version,
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        best_reward=max(rewards, default=None),
        train_key=train_key,
        weights=advantages.weigh(row.run, by_sample) if train_key else None,
        accepted_at=timezone.now(),
        infra_errors=row.infra_errors + len(infra_errors),
        cause="",
        outcome="",
    )
    leases.release(held)
    review().ask(row)
    if infra_errors and row.run:
        _note_infra(row, f"{len(infra_errors)} attempts were lost and run again", infra_errors)
    after_end(row)
    return True


@transaction.atomic
def fail(
    *, group: Group, held: leases.Held, loss: Loss, graded: Sequence[Graded] = (), infra_errors: Sequence[Loss] = ()
) -> bool:
    """The infrastructure failed under a group: dispatch it again, or drop it once its attempts are used up.

    True when it will be tried again. Raises LeaseLost. Verdicts of a failed attempt count only when it was the last.
    """
    leases.require(held)
    row = Group.objects.select_for_update(of=("self",)).get(pk=group.pk)
    if row.state != "running":
        return False
    row.infra_errors += max(1, len(infra_errors))
    row.save(update_fields=["infra_errors"])
    leases.release(held)
    again = row.attempts < MAX_ATTEMPTS and loss.outcome is not Cause.TOO_LARGE  # played again, it would be as large
    if row.run:
        _note_infra(row, f"attempt {row.attempts} of {MAX_ATTEMPTS} failed: {loss}", infra_errors)
    if again:
        requeue(group=row, cause=loss.message, outcome=loss.outcome, delay=RETRY_SECONDS * row.attempts)
    else:
        verdicts.write(row, graded, actor=held.owner)
        drop(group=row, loss=Loss(loss.outcome, f"dropped after {row.attempts} attempts: {loss}"))
    return again


@transaction.atomic
def give_back(*, group: Group, held: leases.Held, cause: str = "its worker was stopped", delay: float = 0.0) -> None:
    """Return a group to the queue because its worker is stopping or has no room. Not an infra error. Raises
    LeaseLost."""
    leases.require(held)
    row = Group.objects.select_for_update(of=("self",)).get(pk=group.pk)
    leases.release(held)
    if row.state == "running":
        row.attempts -= 1
        row.save(update_fields=["attempts"])
        requeue(group=row, cause=cause, delay=delay, actor=held.owner)


@transaction.atomic
def drop_claimed(*, group: Group, held: leases.Held, loss: Loss) -> None:
    """Drop a group that this worker runs, unless it has already ended. Raises LeaseLost."""
    leases.require(held)
    row = Group.objects.select_for_update(of=("self",)).get(pk=group.pk)
    leases.release(held)
    if row.state == "running":
        drop(group=row, loss=loss, actor=held.owner)


@transaction.atomic
def recover(*, group_id: int, cause: str) -> str:
    """Requeue a group without a live worker, or drop it once its attempts are used up."""
    group = Group.objects.select_for_update(of=("self",)).get(pk=group_id)
    if group.state == "dispatched":
        enqueue(
            "rollouts.run_group",
            {"group_id": group.pk},
            queue="rollout" if group.run_id else "eval",
            key=f"group:{group.pk}",
        )
        return "sent again"
    if group.state != "running" or leases.is_held(f"group:{group.pk}"):
        return "left alone"
    group.infra_errors += 1
    group.save(update_fields=["infra_errors"])
    if group.run:
        _note_infra(group, cause, [Loss(Cause.WORKER_LOST, cause)])
    if group.attempts >= MAX_ATTEMPTS:
        drop(group=group, loss=Loss(Cause.WORKER_LOST, f"dropped after {group.attempts} attempts: {cause}"))
        return "dropped"
    requeue(group=group, cause=cause, outcome=Cause.WORKER_LOST, actor="reconciler")
    return "dispatched again"


@transaction.atomic
def consume(*, run: Run, group_ids: Sequence[int], step: int) -> None:
    """Assign accepted groups to the batch of `step` and dispatch replacements. Fails as a whole if one is not
    accepted."""
    say_why(actor="trainer", reason=f"batch of step {step}")
    changed = Group.objects.filter(run=run, pk__in=group_ids, state="accepted").update(
        state="consumed", consumed_step=step
    )
    assert changed == len(group_ids), f"{len(group_ids) - changed} groups of step {step} are not accepted"
    pump(run_id=run.pk)


@transaction.atomic
def drop_stale(*, run: Run, group_ids: Sequence[int], step: int) -> None:
    """Drop accepted groups whose oldest tokens are too stale at `step`. They are never trained on and are replaced."""
    stage = run.configuration.stage
    assert isinstance(stage, RLConfig)
    for group in Group.objects.select_for_update(of=("self",)).filter(run=run, pk__in=group_ids, state="accepted"):
        loss = stale_loss(group.prompt_index, step, stage.staleness_limit)
        drop(group=group, loss=loss, actor="trainer")
        add_event(run=run, kind="infra", level="warning", message=f"group {group.pk} is dropped: {loss}")


@transaction.atomic
def drop_unusable(*, run: Run, unusable: Mapping[int, str], step: int) -> None:
    """Drop accepted groups whose training data cannot be read, with the reason of each, before they are in a batch."""
    for group in Group.objects.select_for_update(of=("self",)).filter(run=run, pk__in=unusable, state="accepted"):
        loss = Loss(Cause.DATA_LOST, f"its training data cannot be read at step {step}: {unusable[group.pk]}")
        drop(group=group, loss=loss, actor="trainer")
        add_event(run=run, kind="infra", level="error", message=f"group {group.pk} is dropped: {loss}")


def _write_findings(group: Group, audit: Audited) -> None:
    try:
        with transaction.atomic():
            findings.record(group=group, found=audit.found)
    except DataError:  # a finding holds what the database refuses: it is left out, those of the other rollouts stay
        log.exception("group %d: findings are written rollout by rollout", group.pk)
        for sample, found in audit.found.items():
            try:
                with transaction.atomic():
                    findings.record(group=group, found={sample: found})
            except DataError:
                log.exception("group %d, sample %d: the database refuses a finding", group.pk, sample)
    findings.follow_up(group=group, out=audit.out)


def _note_infra(group: Group, message: str, losses: Sequence[Loss]) -> None:
    assert group.run is not None
    distinct = sorted({storable_text(loss.message) for loss in losses})[:5]
    outcomes = sorted({str(loss.outcome) for loss in losses})
    add_event(
        run=group.run,
        kind="infra",
        level="warning",
        message=storable_text(f"group {group.pk}: {message}"),
        data={"group": group.pk, "causes": [cause[:300] for cause in distinct], "outcomes": outcomes},
    )
